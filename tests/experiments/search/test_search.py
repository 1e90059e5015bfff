"""A search from trials to a ranking: what it computes, what it remembers, what it refuses."""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from retinabench.core.errors import InputError, WorkError
from retinabench.data.prepared.folder import open_prepared
from retinabench.experiments.config import load_run
from retinabench.experiments.engines.jobs import Outcome
from retinabench.experiments.search.ranking import write_ranking
from retinabench.experiments.search.search import search
from retinabench.experiments.search.space import points, space_of
from retinabench.predictions.io import read_predictions
from support.searching import Serial, again, base_run, pretend, small_space


def facts(ranking):
    return [(row.trial, row.state, repr(row.value), row.values) for row in ranking.rows]


# --------------------------------------------------------------------------------------- real trainings


def test_trained_trials_rank_by_their_own_validation_rows_and_the_best_is_a_configuration(data, tmp_path):
    base, space = base_run(data), small_space()
    engine = Serial()
    ranking = search(base, space, trials=3, out=tmp_path, engine=engine)
    assert [run.optimizer.lr for run in engine.computed] == [
        p["optimizer.lr"] for p in points(space, 0, 3, 0)
    ]
    for row in ranking.rows:
        p = read_predictions(row.folder / "predictions.parquet")
        rows = (p.split == "validation") & (p.domain == "in_domain")
        assert row.value == pytest.approx(roc_auc_score(p.label[rows], p.prob[rows]), abs=1e-12)
    assert [row.value for row in ranking.rows] == sorted((row.value for row in ranking.rows), reverse=True)
    write_ranking(ranking, tmp_path / "ranking")
    chosen = load_run(tmp_path / "ranking" / "best.toml", data=str(data))
    fingerprint = open_prepared(data).fingerprint
    assert chosen.hash(fingerprint) == ranking.best.hash(fingerprint)
    assert ranking.rows[0].folder.name.endswith(chosen.hash(fingerprint))


# ------------------------------------------------------------------------------------------- resuming


def test_a_finished_search_computes_nothing_again_and_another_criterion_ranks_the_same_trials(
    data, begun, copy
):
    ranking, engine = again(data, copy)
    assert engine.computed == []
    assert facts(ranking) == facts(begun[1])
    for rules in ("corrected", "published"):
        other, engine = again(data, copy, criterion="balanced_joint_accuracy_area", rules=rules)
        assert engine.computed == []
        assert other.rows[0].value != ranking.rows[0].value


def test_more_trials_add_to_those_that_are_there(data, begun, copy):
    ranking, engine = again(data, copy, trials=12)
    assert [run.optimizer.lr for run in engine.computed] == [
        p["optimizer.lr"] for p in points(small_space(), 8, 12, 0)
    ]
    first = sorted((f for f in facts(ranking) if f[0] < 8), key=lambda f: f[0])
    assert first == sorted(facts(begun[1]), key=lambda f: f[0])


def test_an_interrupted_search_computes_the_rest_and_nothing_twice(data, begun, tmp_path):
    def interrupt(job, left=[3]):  # noqa: B006  # counts over calls
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return pretend(job)

    with pytest.raises(KeyboardInterrupt):
        again(data, tmp_path, Serial(interrupt))
    ranking, engine = again(data, tmp_path)
    assert len(engine.computed) == 5
    assert facts(ranking) == facts(begun[1])


def test_a_lost_table_is_read_again_from_the_run_folders(data, begun, copy):
    shutil.rmtree(copy / "results")
    ranking, engine = again(data, copy)
    diverged = [row for row in ranking.rows if row.state == "diverged"]
    assert len(engine.computed) == len(diverged)  # they left no finished folder
    assert facts(ranking) == facts(begun[1])


def test_a_run_folder_that_is_gone_is_computed_again(data, begun, copy):
    shutil.rmtree(copy / "runs" / begun[1].rows[0].folder.name)
    ranking, engine = again(data, copy)
    assert [run.hash("x") for run in engine.computed] == [begun[1].best.hash("x")]
    assert facts(ranking) == facts(begun[1])


KILLED = """
import os, signal, sys
from pathlib import Path
from retinabench.experiments.search import results
from retinabench.experiments.search.search import search
from support.searching import Serial, base_run, pretend, small_space

write, count, target = results.Writer._write, 0, int(sys.argv[3])

def torn(self, content):
    global count
    count += 1
    if count == target:
        os.write(self._handle, b'{"run": "0123')
        os.kill(os.getpid(), signal.SIGKILL)
    write(self, content)

results.Writer._write = torn
search(base_run(Path(sys.argv[1])), small_space(), trials=8, out=Path(sys.argv[2]), engine=Serial(pretend))
"""


def test_kill_9_in_the_middle_of_a_row_loses_no_trial(data, begun, tmp_path):
    """The third write of the table is its second row; the folder's lock ends with the process."""
    command = [sys.executable, "-c", KILLED, str(data), str(tmp_path / "sweep"), "3"]
    paths = os.pathsep.join(sys.path)
    killed = subprocess.run(
        command, capture_output=True, check=False, env={**os.environ, "PYTHONPATH": paths}
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    ranking, engine = again(data, tmp_path / "sweep")
    # Two runs had ended; the one whose row was torn is read from its folder.
    assert len(engine.computed) == 6
    assert facts(ranking) == facts(begun[1])


# ------------------------------------------------------------------------------- trials that end badly


def test_diverged_trials_are_kept_marked_last_and_not_tried_again(begun):
    ranking = begun[1]
    lost = [row for row in ranking.rows if row.state == "diverged"]
    assert lost
    assert ranking.rows[-len(lost) :] == lost
    assert all(row.values["optimizer.lr"] > 0.3 and math.isnan(row.value) for row in lost)
    assert all("not finite" in row.note for row in lost)


@pytest.mark.parametrize("state", ["failed", "out_of_memory"])
def test_a_trial_that_failed_is_ranked_last_and_tried_again_by_the_next_search(data, begun, tmp_path, state):
    first = points(small_space(), 0, 1, 0)[0]["optimizer.lr"]

    def failing(job):
        if job.run.optimizer.lr == first:
            return Outcome(job, state, None, 1.0, 2, "the machine ran out of patience")
        return pretend(job)

    ranking, _ = again(data, tmp_path, Serial(failing))
    assert (ranking.rows[-1].trial, ranking.rows[-1].state, ranking.rows[-1].attempts) == (0, state, 2)
    assert "ran out of patience" in ranking.rows[-1].note
    ranking, engine = again(data, tmp_path)
    assert [run.optimizer.lr for run in engine.computed] == [first]
    assert facts(ranking) == facts(begun[1])


def test_where_no_trial_has_a_value_there_is_no_best(data, tmp_path):
    engine = Serial(lambda job: Outcome(job, "diverged", None, 1.0, 1, "the loss is not finite"))
    ranking, _ = again(data, tmp_path, engine, trials=2)
    with pytest.raises(WorkError, match=r"none of 2 trials .*not finite"):
        _ = ranking.best
    files = write_ranking(ranking, tmp_path / "ranking")
    assert [file.name for file in files] == ["ranking.csv", "ranking.json"]


def test_an_undefined_criterion_ranks_behind_every_value_with_its_reason(data, tmp_path):
    """A run folder whose file lacks the shifted validation rows, as of a user's own making."""

    def partial(job):
        outcome = pretend(job)
        if job.run.optimizer.lr < 0.01:
            file = outcome.folder / "predictions.parquet"
            p = read_predictions(file)
            from retinabench.predictions.io import write_predictions

            write_predictions(p.take(np.flatnonzero(p.domain == "in_domain")), file)
        return outcome

    ranking, _ = again(data, tmp_path, Serial(partial), criterion="balanced_joint_accuracy_area")
    known = [math.isfinite(row.value) for row in ranking.rows]
    assert known == sorted(known, reverse=True)
    undefined = [row for row in ranking.rows if row.state == "done" and not math.isfinite(row.value)]
    assert undefined
    assert all("no shifted validation images" in row.note for row in undefined)


def test_a_choice_that_the_run_spells_otherwise_keeps_its_own_spelling(data, tmp_path):
    """`optimizer.augment = true` is the older name of "flip"."""
    space = space_of({"optimizer": {"augment": {"choices": [True, "none"]}}})
    ranking, _ = again(data, tmp_path, space=space, trials=4)
    assert {(row.values["optimizer.augment"], row.run.optimizer.augment) for row in ranking.rows} == {
        (True, "flip"), ("none", "none"),
    }  # fmt: skip


def test_equal_trials_are_computed_once(data, tmp_path):
    space = space_of({"method": {"rate": {"choices": [0.1, 0.2]}}})
    ranking, engine = again(data, tmp_path, space=space)
    assert len(engine.computed) == 2
    assert len(ranking.rows) == 8
    assert [row.trial for row in ranking.rows[:4]] == sorted(row.trial for row in ranking.rows[:4])


# ---------------------------------------------------------------------------------------- refusals


def test_two_searches_in_one_folder_the_second_is_refused(data, tmp_path):
    def second(job):
        with pytest.raises(InputError, match="another search command is at work in this folder"):
            again(data, tmp_path)
        return pretend(job)

    _, engine = again(data, tmp_path, Serial(second), trials=1)
    assert len(engine.computed) == 1


def test_a_criterion_without_its_images_is_refused_before_anything_is_computed(data, tmp_path):
    engine = Serial(pretend)
    with pytest.raises(
        InputError, match="no shifted validation images, which balanced_joint_accuracy_area needs"
    ):
        again(
            data,
            tmp_path,
            engine,
            base=base_run(data, "task=in_domain"),
            criterion="balanced_joint_accuracy_area",
        )
    assert engine.computed == []
    assert list(tmp_path.iterdir()) == []


def test_no_trials_and_unknown_names_are_refused(data, tmp_path):
    with pytest.raises(InputError, match="0 trials"):
        again(data, tmp_path, trials=0)
    with pytest.raises(InputError, match="unknown criterion"):
        again(data, tmp_path, criterion="auroc")


# ------------------------------------------------------------------------------------------- halving


def test_halving_trains_few_in_full_and_they_are_the_runs_of_a_full_search(data, begun, tmp_path):
    base = base_run(data, "optimizer.epochs=9", "optimizer.warmup=1.8")
    ranking, engine = again(data, tmp_path / "halved", trials=9, base=base, halving=3)
    epochs = [run.optimizer.epochs for run in engine.computed]
    assert epochs == [1] * 9 + [3] * 3 + [9]
    warmups = {run.optimizer.epochs: run.optimizer.warmup for run in engine.computed}
    assert warmups == pytest.approx({1: 0.2, 3: 0.6, 9: 1.8})
    full, _ = again(data, tmp_path / "full", trials=9, base=base)
    winner = ranking.rows[0]
    assert ranking.best == next(row for row in full.rows if row.trial == winner.trial).run
    assert winner.value == next(row for row in full.rows if row.trial == winner.trial).value
    # Longest trained first, then by value; those that were given up are never ahead of one that was not.
    trained = [row.epochs for row in ranking.rows if row.state == "done"]
    assert trained == sorted(trained, reverse=True)
    assert winner.seconds == 3 * 2.0
    assert [row.stopped for row in ranking.rows[:2]] == [False, True]
    assert ranking.rows[1].note == "stopped after 3 epochs"
    _, engine = again(data, tmp_path / "halved", trials=9, base=base, halving=3)
    assert engine.computed == []


def test_the_published_protocol_gives_up_no_trial(data, tmp_path):
    with pytest.raises(InputError, match="published protocol trains every trial in full"):
        again(data, tmp_path, rules="published", halving=3)
    with pytest.raises(InputError, match="halving by 1"):
        again(data, tmp_path, halving=1)


# ------------------------------------------------------------------------------------------- files
