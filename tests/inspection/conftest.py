"""The prepared folder with every kind of fault."""

from __future__ import annotations

import pytest

from support.faulty_images import write_faulty


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for each module."""
    return write_faulty(tmp_path_factory.mktemp("inspect") / "data")
