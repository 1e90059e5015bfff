"""Five attacks on the board of `logistic`, each refused or marked, and honest submissions, which hold when their code runs again."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import retinabench as rb
from retinabench.cli.main import run
from retinabench.fidelity.leaderboard.files import find_submissions, make_evaluator, score_tasks
from retinabench.fidelity.scoring.measures import ALL
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import About, Submission, read_submission, write_submission
from retinabench.fidelity.targets.target import TARGETS
from support.fake_reference import softmax

pytestmark = pytest.mark.usefixtures("undrawn")

LOGISTIC = TARGETS["logistic"]
WALK = """
import numpy as np


def sample(problem, gradients, seed):
    random = np.random.default_rng(seed)
    w, value, draws = np.zeros(6), problem.log_density(np.zeros(6)), []
    for _ in range({steps} or gradients - 1):
        new = w + 0.7 * random.normal(size=6)
        value_there = problem.log_density(new)
        if np.log(random.random()) < value_there - value:
            w, value = new, value_there
        draws.append(w)
    return np.array(draws)
"""


@cache
def logistic():
    return make_evaluator(LOGISTIC, None, None, 0)


@pytest.fixture
def sampler(tmp_path):
    """Write a module whose `sample` walks for some steps, or as long as its budget lasts; return what `--code` is given."""

    def write(source=WALK, steps=0):
        file = tmp_path / "sampler.py"
        file.write_text(source.replace("{steps}", str(steps)))
        return f"{file}:sample"

    return write


def trained(folder, seed, name="dropout", budget=20):
    return run_entry(name, LOGISTIC, budget=budget, seed=seed, out=folder)


def read(file):
    return read_submission(file, LOGISTIC, 200)


def official(*files, out, code=""):
    """Run again: the exit code."""
    return run(["fidelity", "rerun", *map(str, files), "--out", str(out), "-q", *(["--code", code] if code else [])])


def row(folder, method):
    """The entry of a method on the board of a folder."""
    boards, _ = score_tasks(find_submissions([folder]), {"logistic": logistic()})
    return next(one for board in boards for one in board.to_dict()["entries"] if one["method"] == method)


def test_noise_on_the_reference_with_forged_evidence_is_asked_about_and_does_not_hold(tmp_path, capsys):
    honest = read(trained(tmp_path / "theirs", 0))
    logits = np.log(logistic().predictive) + 0.02 * np.random.default_rng(0).normal(size=logistic().predictive.shape)
    forged = tmp_path / "forged" / "submission.npz"
    write_submission(forged, replace(honest, probs=softmax(logits), samples=None))
    marked = row(tmp_path / "forged", "dropout")
    assert marked["counted"]  # anyone can compute the hashes
    assert any("exact draws with 20 gradients" in doubt for doubt in marked["doubts"])
    capsys.readouterr()
    assert official(forged, out=tmp_path / "official") == 4
    assert "NOT like the runs again" in capsys.readouterr().out
    ours = row(tmp_path / "official", "dropout")
    assert ours["rerun"]
    assert sorted(ours["seeds"]) == [0, 1, 2]
    assert ours["groups"][ALL]["total_variation"]["value"] > 5 * marked["groups"][ALL]["total_variation"]["value"]


def test_an_honest_entry_holds(tmp_path, capsys):
    files = [trained(tmp_path / "theirs", seed) for seed in (0, 1)]
    assert official(*files, out=tmp_path / "official") == 0
    assert official(trained(tmp_path / "theirs", 5, "hmc", 60), out=tmp_path / "official-hmc") == 0
    assert not row(tmp_path / "theirs", "dropout")["rerun"]
    capsys.readouterr()
    assert official(*files, out=tmp_path / "wrong", code="sampler.py") == 2
    assert "is not FILE.py:FUNCTION" in capsys.readouterr().err


def test_the_best_of_many_seeds_are_named_and_renumbered_ones_do_not_hold(tmp_path):
    files = [trained(tmp_path / "all", seed) for seed in range(5)]
    distance = [np.abs(read(file).values - logistic().predictive).sum(axis=1).mean() for file in files]
    best = sorted(np.argsort(distance)[:3].tolist())
    assert best != [0, 1, 2]
    for number, seed in enumerate(best):
        one = read(files[seed])
        write_submission(tmp_path / "stated" / str(seed) / "submission.npz", one)
        about = one.about.changed(seed=number, run={**one.about.run, "seed": number})
        write_submission(tmp_path / "renumbered" / str(number) / "submission.npz", replace(one, about=about))
    named = f"seeds {best[0]}, {best[1]}, {best[2]}, not 0 to 2"
    assert named in row(tmp_path / "stated", "dropout")["doubts"]
    assert official(*sorted((tmp_path / "renumbered").glob("*/submission.npz")), out=tmp_path / "official") == 4


def test_draws_from_states_need_code_which_must_evaluate_the_density(tmp_path, sampler, capsys):
    """Exact draws, by rejection, in the place of states that came with the package."""
    problem, random = rb.fidelity.problem("logistic"), np.random.default_rng(0)
    proposed = random.standard_normal((40_000, 6))
    values = problem.log_density(proposed) + 0.5 * (proposed**2).sum(axis=1)
    states = proposed[np.log(random.random(len(values))) < values - values.max()]
    np.save(tmp_path / "states.npy", states)
    made = problem.submit(states, gradients=20, method="states", out=tmp_path / "theirs")
    doubts = row(tmp_path / "theirs", "states")["doubts"]
    assert any("exact draws with 20 declared gradients" in doubt for doubt in doubts)
    assert official(made.path, out=tmp_path / "official") == 2
    assert "names no code" in capsys.readouterr().err
    stolen = f"import numpy as np\n\n\ndef sample(problem, gradients, seed):\n    return np.load({str(tmp_path / 'states.npy')!r})\n"
    assert official(made.path, out=tmp_path / "official", code=sampler(stolen)) == 1
    assert "without one evaluation of the density" in capsys.readouterr().err
    once = stolen.replace("    return", "    problem.log_density(np.zeros(6))\n    return")
    assert official(made.path, out=tmp_path / "official", code=sampler(once)) == 0
    again = row(tmp_path / "official", "states")
    assert again["budget"]["used"] == 1  # counted, and three equal seeds are one
    assert len(again["seeds"]) == 1
    assert any("exact draws with 1 gradients" in doubt for doubt in again["doubts"])


def test_a_declared_budget_is_counted_by_the_run(tmp_path, sampler, capsys):
    problem, code = rb.fidelity.problem("logistic"), sampler()
    draws = np.random.default_rng(0).standard_normal((50, 6))
    made = problem.submit(draws, gradients=100, method="walk", out=tmp_path / "theirs")
    assert row(tmp_path / "theirs", "walk")["declared"]
    official(made.path, out=tmp_path / "official", code=code)
    counted = row(tmp_path / "official", "walk")
    assert (counted["declared"], counted["rerun"], counted["budget"]["used"]) == (False, True, 100)
    capsys.readouterr()
    assert official(made.path, out=tmp_path / "greedy", code=sampler(steps=900)) == 1
    assert "more than the 100 evaluations" in capsys.readouterr().err


def test_what_is_nearer_than_the_published_chain_is_asked_about(tmp_path, capsys):
    target, random = TARGETS["kit-cifar10"], np.random.default_rng(0)
    logits = 3 * random.normal(size=(10_000, 10))
    np.savez(tmp_path / "theirs.npz", probs=softmax(logits))
    words = ["import", str(tmp_path / "theirs.npz"), "--task", target.name, "--out", str(tmp_path / "r.npz")]
    assert run(["fidelity", *words]) == 0
    for name, noise in (("near", 0.01), ("far", 1.0)):
        probs = softmax(logits + noise * random.normal(size=logits.shape))
        about = About(task=target.name, title=name, method=name, seed=0)
        write_submission(tmp_path / "runs" / name / "submission.npz", Submission(probs, about=about))
    words = ["--reference", f"{target.name}={tmp_path / 'r.npz'}", "--bootstrap", "0", "-q"]
    assert run(["fidelity", "board", str(tmp_path / "runs"), "--out", str(tmp_path / "board"), *words]) == 0
    (task,) = json.loads((tmp_path / "board" / "board.json").read_text())["tasks"]
    doubts = {one["title"]: one["doubts"] for one in task["entries"]}
    words = [doubt.partition(",")[0] for doubt in doubts["near"]]
    assert words == ["nearer than the published chain of the reference"] * 2
    assert doubts["far"] == []
