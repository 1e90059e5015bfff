import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for each module."""
    return tmp_path_factory.mktemp("formats")
