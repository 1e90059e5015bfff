"""Every method of `METHODS`, interrupted between two epochs and started again, gives the same bits."""

from __future__ import annotations

import filecmp

import pytest

from helpers import TINY, make_prepared
from retinabench.config import load_run
from retinabench.methods import METHODS
from retinabench.methods.journal import Journal
from retinabench.run import Engine, execute

ENGINE = Engine("cpu")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return make_prepared(tmp_path_factory.mktemp("data") / "prepared")


@pytest.mark.parametrize("name", [name for name in METHODS if name != "ensemble"])
def test_it_continues_to_the_same_bits(prepared, tmp_path, monkeypatch, name):
    run = load_run(None, [*TINY, f"method.name={name}"], data=str(prepared))
    whole = execute(run, tmp_path / "whole", ENGINE)
    checkpoint = Journal.checkpoint

    def interrupted(journal, row, state):
        checkpoint(journal, row, state)
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "checkpoint", interrupted)
        with pytest.raises(KeyboardInterrupt):
            execute(run, tmp_path / "broken", ENGINE)
    continued = execute(run, tmp_path / "broken", ENGINE)
    for file in ("predictions.parquet", "posterior.pt"):
        assert filecmp.cmp(whole / file, continued / file, shallow=False)
