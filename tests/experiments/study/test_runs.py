"""The runs of a study: base runs, trials, seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.study.definition import Study, read_study
from retinabench.experiments.study.prediction_files import ensembles
from retinabench.experiments.study.runs import (
    SavedChoice,
    base_run,
    cells,
    is_drawn,
    most_runs,
    read_choices,
    trials,
    with_seeds,
    write_choices,
)
from support.studies import MINIMAL, tiny, written


@pytest.mark.parametrize("name", ["country", "severity"])
@pytest.mark.parametrize("rules", ["corrected", "published"])
def test_the_published_choices_can_be_taken_instead_of_a_search(name, rules, tmp_path):
    study = read_study(name, ["trials=0", f"rules={rules}"])
    found = {
        base_run(study, cell.task, cell.method, tmp_path, criterion)
        for cell in cells(study, tmp_path)
        for criterion in study.choices
    }
    # Radial and rank-1 have one choice for both criteria on the severity task.
    assert len(found) == 12 - 2 * (name == "severity")
    norms = {run.method.norm for run in found if run.method.name == "radial"}
    assert norms == {"per_filter" if rules == "published" else "layer"}


def test_words_override_the_file(tmp_path):
    study = read_study(written(tmp_path, MINIMAL), ["seeds=5", "base.optimizer.epochs=7", "seed=40"])
    (cell,) = cells(study, tmp_path)
    assert cell.base.optimizer.epochs == 7
    assert [run.seed for run in with_seeds(study, cell.base)] == [40, 41, 42, 43, 44]


def test_a_method_s_name_is_short_for_its_table(tmp_path):
    text = MINIMAL + '\n[methods.other]\nrun = {method = "dropout", optimizer = {lr = 0.2}}\n'
    study = read_study(written(tmp_path, text), ["base.method.samples=2", "base.optimizer.lr=0.1"])
    run = base_run(study, next(iter(study.tasks)), "other", tmp_path)
    assert (run.method.name, run.method.samples, run.optimizer.lr) == ("dropout", 2, 0.2)


def test_a_search_shares_its_first_trials_with_a_longer_one(tmp_path):
    short, long = (Study(**tiny(tmp_path, Path("data"), trials=n)) for n in (2, 5))
    for a, b in zip(cells(short, tmp_path), cells(long, tmp_path), strict=True):
        assert trials(short, a) == trials(long, b)[:2]


def test_repeated_cross_validation_gives_every_repeat_seeds_and_ensembles_of_its_own(tmp_path):
    study = read_study(written(tmp_path, MINIMAL), ["folds=4", "repeats=2", "seeds=3", "ensemble=2"])
    assert study.run_seeds == (0, 1, 2, 3, 4, 5)
    runs = with_seeds(study, base_run(study, "country_shift", "map", tmp_path))
    assert [(run.seed, run.cross_validation.repeat) for run in runs] == [(k, k // 3) for k in range(6)]
    assert all(run.cross_validation.folds == 4 for run in runs)
    assert ensembles(study) == [(0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)]
    assert most_runs(study) == 6


def test_choices_make_the_round_trip_and_equal_ones_are_not_written_again(tmp_path):
    study = read_study(written(tmp_path, MINIMAL))
    (cell,) = cells(study, tmp_path / "out")
    assert read_choices(cell) == {}
    cell.folder.mkdir(parents=True)
    choices = {"in_domain_auroc": SavedChoice(4, cell.base), "other": SavedChoice(2, None)}
    write_choices(cell, choices)
    assert read_choices(cell) == choices
    file = cell.folder / "choices.json"
    stamp = file.stat().st_mtime_ns
    write_choices(cell, choices)
    assert file.stat().st_mtime_ns == stamp
    assert cell.runs == cell.folder / "runs"


def test_an_ensemble_is_not_a_method_of_a_study(tmp_path):
    study = read_study(written(tmp_path, MINIMAL), ["methods.map.run.method=ensemble"])
    with pytest.raises(InputError, match=r"methods\.map: is an ensemble"):
        cells(study, tmp_path)


def test_tasks_that_draw_alike_share_their_data(tmp_path):
    drawn = {"draw": {"images": 64, "size": 16}}
    study = Study(
        **tiny(tmp_path, Path("d"), tasks={"country_shift": drawn, "in_domain": drawn}, criteria=[], trials=0)
    )
    folders = {base_run(study, task, "map", tmp_path).data for task in study.tasks}
    assert folders == {str(tmp_path / "data" / "synthetic-64-16-0")}
    assert not is_drawn(study, "in_domain", tmp_path)
