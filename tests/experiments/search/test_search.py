import math
import os
import shutil
import signal
from itertools import count

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from retinabench.core.errors import InputError
from retinabench.data.prepared import open_prepared
from retinabench.experiments import config
from retinabench.experiments.config import load_run
from retinabench.experiments.engines.scheduler import Outcome
from retinabench.experiments.many import ResultTable
from retinabench.experiments.search import search as search_module
from retinabench.experiments.search.ranking import write_ranking
from retinabench.experiments.search.search import search, trial_runs
from retinabench.experiments.search.space import points, space_of
from retinabench.predictions.io import read_predictions
from support.forking import forked
from support.helpers import make_prepared
from support.searching import SPACE, Serial, again, base_run, pretend, small_space


def facts(ranking):
    return [(row.trial, row.state, repr(row.value), row.values) for row in ranking.rows]


def test_trained_trials_rank_by_their_own_validation_rows_and_the_best_is_a_configuration(data, tmp_path):
    base, space = base_run(data), small_space()
    engine = Serial()
    ranking = search(base, space, trials=3, out=tmp_path, engine=engine)
    assert [run.optimizer.lr for run in engine.computed] == [p["optimizer.lr"] for p in points(space, 0, 3, 0)]
    for row in ranking.rows:
        p = read_predictions(row.folder / "predictions.parquet")
        rows = (p.split == "validation") & (p.domain == "in_domain")
        assert row.value == pytest.approx(roc_auc_score(p.label[rows], p.prob[rows]), abs=1e-12)
    assert [row.value for row in ranking.rows] == sorted((row.value for row in ranking.rows), reverse=True)
    write_ranking(ranking, tmp_path / "ranking")
    chosen = load_run(tmp_path / "ranking" / "best.toml", data=str(data))
    fingerprint = open_prepared(data).fingerprint
    assert chosen.hash(fingerprint) == ranking.first.run.hash(fingerprint)
    assert ranking.rows[0].folder.name.endswith(chosen.hash(fingerprint))


def test_a_finished_search_computes_nothing_again_and_another_criterion_ranks_the_same_trials(data, begun, copy):
    ranking, engine = again(data, copy)
    assert engine.computed == []
    assert facts(ranking) == facts(begun[1])
    for rules in ("corrected", "published"):
        other, engine = again(data, copy, criterion="balanced_joint_accuracy_area", rules=rules)
        assert engine.computed == []
        assert other.rows[0].value != ranking.rows[0].value


def test_more_trials_add_to_those_that_are_there(data, begun, copy):
    ranking, engine = again(data, copy, trials=12)
    assert [run.optimizer.lr for run in engine.computed] == [p["optimizer.lr"] for p in points(small_space(), 8, 12, 0)]
    first = sorted((f for f in facts(ranking) if f[0] < 8), key=lambda f: f[0])
    assert first == sorted(facts(begun[1]), key=lambda f: f[0])


def test_a_lost_table_is_read_again_from_the_run_folders(data, begun, copy):
    shutil.rmtree(copy / "results")
    ranking, engine = again(data, copy)
    diverged = [row for row in ranking.rows if row.state == "diverged"]
    assert len(engine.computed) == len(diverged)  # they left no finished folder
    assert facts(ranking) == facts(begun[1])


def test_a_run_folder_that_is_gone_is_computed_again(data, begun, copy):
    shutil.rmtree(copy / "runs" / begun[1].rows[0].folder.name)
    ranking, engine = again(data, copy)
    assert [run.hash("x") for run in engine.computed] == [begun[1].first.run.hash("x")]
    assert facts(ranking) == facts(begun[1])


def test_kill_9_in_the_middle_of_a_row_loses_no_trial(data, begun, tmp_path, one_thread):
    """The third write of the table is its second row; the folder's lock ends with the process."""

    def killed():
        write, numbers = ResultTable._write, count(1)

        def torn(self, content):
            if next(numbers) == 3:
                os.write(self._handle, b'{"run": "0123')
                os.kill(os.getpid(), signal.SIGKILL)
            write(self, content)

        ResultTable._write = torn
        again(data, tmp_path)

    assert forked(killed) == -signal.SIGKILL
    ranking, engine = again(data, tmp_path)
    # Two runs had ended; the one whose row was torn is read from its folder.
    assert len(engine.computed) == 6
    assert facts(ranking) == facts(begun[1])


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


def test_equal_trials_are_computed_once(data, tmp_path):
    space = space_of({"method": {"rate": {"choices": [0.1, 0.2]}}})
    ranking, engine = again(data, tmp_path, space=space)
    assert len(engine.computed) == 2
    assert len(ranking.rows) == 8
    assert [row.trial for row in ranking.rows[:4]] == sorted(row.trial for row in ranking.rows[:4])


def test_two_searches_in_one_folder_the_second_is_refused(data, tmp_path):
    def second(job):
        with pytest.raises(InputError, match="another search command is at work in this folder"):
            again(data, tmp_path)
        return pretend(job)

    _, engine = again(data, tmp_path, Serial(second), trials=1)
    assert len(engine.computed) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"seed": 1}, "seed: 0 there, 1 here"),
        (
            {"space": space_of({**SPACE, "method": {"rate": {"low": 0.0, "high": 0.4}}})},
            "rate.high: 0.5 there, 0.4 here",
        ),
        ({"space": space_of({k: SPACE[k] for k in ("method", "optimizer")})}, "another order of keys"),
        ({"base": "optimizer.epochs=4"}, "base.optimizer.epochs: 3 there, 4 here"),
        ({"__version__": "9.9.9"}, 'there, "9.9.9" here'),
        ({"PROTOCOL": 99}, f"protocol: {config.PROTOCOL} there, 99 here"),
    ],
)
def test_a_folder_of_another_sweep_is_refused(data, copy, monkeypatch, options, words):
    for name in {"__version__", "PROTOCOL"} & set(options):
        monkeypatch.setattr(search_module, name, options.pop(name))
    if "base" in options:
        options = {"base": base_run(data, options["base"])}
    engine = Serial(pretend)
    with pytest.raises(InputError) as caught:
        again(data, copy, engine, **options)
    for word in (str(copy), "choose another --out", words):
        assert word in str(caught.value)
    assert engine.computed == []


def test_a_folder_of_other_data_is_refused(copy, tmp_path):
    with pytest.raises(InputError, match=r"fingerprint: .* there, .* here"):
        again(make_prepared(tmp_path / "other", seed=1), copy)


def test_what_the_space_varies_may_differ_in_the_base(data, copy):
    _, engine = again(data, copy, base=base_run(data, "optimizer.lr=0.5", "method.rate=0.3"))
    assert engine.computed == []


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"optimizer.lrr": {"low": 1, "high": 2}}, ["unknown key 'optimizer.lrr'", "Did you mean 'optimizer.lr'?"]),
        ({"optimizer": {"lr": {"low": 0.0, "high": 1.0}}}, ["optimizer.lr", "greater than 0"]),
        ({"optimizer": {"momentum": {"low": 0.5, "high": 1.0}}}, ["optimizer.momentum", "less than 1"]),
        ({"method": {"rate": {"choices": [0.1, 1.5]}}}, ["method.rate", "1.5"]),
        ({"method": {"name": {"choices": ["map", "mfvi"]}}}, ["unknown key 'method.name'"]),
        ({"seed": {"low": 0, "high": 9, "integer": True}}, ["unknown key 'seed'"]),
        ({"optimizer": {"schedule": {"choices": ["step", "stepp"]}}}, ["optimizer.schedule", "'stepp'"]),
        ({"method": {"samples": {"low": 1.0, "high": 5.0}}}, ["method.samples"]),
    ],
)
def test_a_space_that_the_run_refuses_is_refused_by_file_and_key(tmp_path, table, words):
    base = load_run("demo/dropout", data="x")
    with pytest.raises(InputError) as caught:
        trial_runs(base, space_of(table, file=tmp_path / "s.toml"), 4, 0)
    for word in [str(tmp_path / "s.toml"), *words]:
        assert word in str(caught.value)


def test_values_that_fit_alone_but_not_together_name_the_trial():
    base = load_run("demo/map", ["method.name=rank1", "method.samples=4"], data="x")
    space = space_of({"method": {"samples": {"choices": [4, 6]}, "components": {"choices": [1, 2, 4]}}})
    with pytest.raises(InputError, match=r"trial \d+: .*not a multiple of components"):
        trial_runs(base, space, 32, 0)
