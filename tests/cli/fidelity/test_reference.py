"""Options of `fidelity reference` that are refused before any work; `tests/fidelity/reference` samples."""

from __future__ import annotations

import pytest

from retinabench.cli.main import run


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fundus", "--out", "{folder}"], "is a folder"),
        (["fundu", "--out", "{folder}/r.npz"], "fundus"),
        (["fundus", "--out", "{folder}/r.npz", "--keep", "7"], "--keep"),
        (["fundus", "--out", "{folder}/r.npz", "--chains", "0"], "--chains"),
        (["fundus", "--out", "{folder}/r.npz", "--acceptance", "1"], "--acceptance"),
    ],
)
def test_what_cannot_be_computed_is_refused_and_nothing_is_written(words, says, tmp_path, capsys):
    assert run(["fidelity", "reference", *(word.format(folder=tmp_path) for word in words)]) == 2
    assert says in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
