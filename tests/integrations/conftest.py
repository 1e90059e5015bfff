"""A trained run, and the same run as it was during its training."""

from __future__ import annotations

import shutil

import pytest

from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from support.helpers import TINY, make_prepared


@pytest.fixture(scope="session")
def easy(tmp_path_factory):
    """Prepared data of easy images."""
    return make_prepared(tmp_path_factory.mktemp("easy") / "data")


@pytest.fixture(scope="session")
def trained(easy, tmp_path_factory):
    """A real run of three epochs."""
    run = load_run(None, [*TINY, "method=dropout"], data=str(easy))
    return execute(run, tmp_path_factory.mktemp("tracking"), Resources("cpu"))


@pytest.fixture
def unfinished(trained, tmp_path):
    """The same run as it was after its second epoch."""
    folder = tmp_path / "runs" / trained.name
    folder.mkdir(parents=True)
    shutil.copy(trained / "run.json", folder)
    lines = (trained / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:2]))
    return folder
