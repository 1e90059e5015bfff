"""An official ranking by the command line: made, predicted, opened; and bad input in one line."""

import json

import numpy as np
import pytest

from retinabench.cli.main import run


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inputs = np.linspace(-3, 3, 48, dtype=np.float32).reshape(24, 2)
    np.savez("mine.npz", inputs=inputs, targets=np.arange(24) % 2, group=np.full(24, "across"))


def test_points_are_made_predicted_and_opened(mine, tmp_path, capsys):
    assert (
        run(["fidelity", "hidden", "make", "mine.npz", "--task", "banana", "--out", "hidden", "--quiet"]) == 0
    )
    assert "publish hidden/points.npz; keep hidden/secret" in capsys.readouterr().out
    command = ["fidelity", "run", "hmc", "--task", "banana", "--budget", "60", "--quiet"]
    assert run([*command, "--points", "hidden/points.npz", "--out", "runs"]) == 0
    (file,) = (tmp_path / "runs").rglob("submission.npz")
    score = [
        "fidelity",
        "hidden",
        "score",
        str(file),
        "--task",
        "banana",
        "--hidden",
        "hidden",
        "--bootstrap",
        "20",
    ]
    assert run([*score, "--json", "scores.json"]) == 0
    (task,) = json.loads((tmp_path / "scores.json").read_text())["tasks"]
    assert task["points"]["all"] == 24
    (tmp_path / "hidden" / "secret" / "salt.json").write_text('{"salt": "another"}')
    assert run(score) == 2
    said = capsys.readouterr().err
    assert "not what was committed to" in said
    assert said.count("\n") == 1


def test_a_second_drawing_and_points_of_another_target_are_refused(mine, capsys):
    make = ["fidelity", "hidden", "make", "mine.npz", "--quiet", "--out"]
    assert run([*make, "hidden", "--task", "banana"]) == 0
    assert run([*make, "hidden", "--task", "banana"]) == 2
    assert "holds hidden points already" in capsys.readouterr().err
    assert run([*make, "new", "--task", "fundus"]) == 2
    assert "inputs" in capsys.readouterr().err
