import json

import numpy as np
import pytest

from cli.test_main import one_line
from retinabench.cli.main import run
from retinabench.fidelity.densities.density import density_names
from retinabench.fidelity.leaderboard import files
from retinabench.fidelity.submissions.entries import entries
from retinabench.fidelity.targets.target import TARGETS
from support.fake_reference import classified

pytestmark = pytest.mark.usefixtures("undrawn")


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


@pytest.fixture
def faked(monkeypatch):
    """A reference of four chains instead of the shipped one."""
    monkeypatch.setattr(files, "read_reference", lambda target, data, path=None: classified(1000, 5))


def test_tasks_are_listed_and_defined(capsys):
    assert run(["fidelity", "tasks"]) == 0
    told = capsys.readouterr().out
    whole = "".join(told.split())  # a narrow terminal breaks long names
    assert all(name in told or len(name) > 15 for name in (*TARGETS, *entries())), whole
    assert run(["fidelity", "tasks", "--json", "-"]) == 0
    defined = json.loads(capsys.readouterr().out)
    assert list(defined) == [*TARGETS, *density_names()]
    assert defined["fundus"] == TARGETS["fundus"].model_dump(mode="json")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "map", "--task", "fundsu"], "Did you mean 'fundus'"),
        (["run", "map", "--task", "fundus", "--data", "."], "come with the package"),
        (["run", "map", "--task", "energy-gap"], "do not come with the package"),
        (["run", "map", "--task", "energy-gap", "--data", "nowhere"], "does not exist"),
        (["run", "map", "--task", "fundus", "optimizer.epochs=2000"], "Lower optimizer.epochs to 1000"),
        (["run", "temperature", "--task", "fundus"], "validation labels"),
        (["run", "map", "--task", "fundus", "--budget", "inf"], "--budget"),
        (["board", "nowhere"], "does not exist"),
        (["import", "p.csv", "--task", "kit-uci", "--out", "k.txt"], "k.txt: is not the name of an .npz file"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(arguments, says, capsys, faked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["fidelity", *arguments]) == 2
    assert says in one_line(capsys)
    assert not list(tmp_path.iterdir())


def test_from_a_run_to_the_board(tmp_path, capsys, faked):
    runs, probs = tmp_path / "runs", str(tmp_path / "theirs.csv")
    np.savetxt(probs, np.random.default_rng(0).dirichlet(np.ones(5), 1000))
    command = ["fidelity", "run", "map", "--task", "fundus", "--budget", "5", "--out", str(runs), "-q"]
    assert run(command) == 0
    file = capsys.readouterr().out.strip()
    scores = tmp_path / "scores.json"
    words = ["--bootstrap", "50", "--json", str(scores), "--keep", str(runs), "--title", "Theirs"]
    assert run(["fidelity", "score", probs, "--task", "fundus", *words]) == 0
    told = capsys.readouterr().out
    assert "Theirs" in told
    assert "uniform" in told
    (task,) = json.loads(scores.read_text())["tasks"]
    assert task["points"]["shifted"] == 250
    assert run(["fidelity", "score", file, probs, "--task", "fundus", "--bootstrap", "0"]) == 0
    capsys.readouterr()
    out = tmp_path / "board"
    assert run(["fidelity", "board", str(runs), "--out", str(out), "--bootstrap", "50", "-q"]) == 0
    assert str(out / "index.html") in capsys.readouterr().out
    titles = {row["title"] for row in json.loads((out / "board.json").read_text())["ranking"]}
    assert titles == {"MAP", "Theirs"}
