"""A study's definition: what it refuses, in which words; the presets fit their methods and spaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.study.definition import Study, read_study, study_presets
from retinabench.experiments.study.prediction_files import ensembles
from retinabench.experiments.study.runs import base_run, cells, merged, most_runs, trials, with_seeds
from support.studies import tiny

MINIMAL = """
trials = 0
seeds = 2
ensemble = 0
[tasks.country_shift]
data = "data"
[methods.map]
config = "demo/map"
"""


def written(tmp_path, text):
    file = tmp_path / "study.toml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "key", "hint"),
    [
        (MINIMAL.replace("seeds", "sedes"), "unknown key 'sedes'", "Did you mean 'seeds'?"),
        (MINIMAL.replace('data = "data"', 'dta = "data"'), "unknown key 'tasks.country_shift.dta'", "'data'"),
        (MINIMAL.replace("config", "confg"), "unknown key 'methods.map.confg'", "'config'"),
        (MINIMAL.replace('data = "data"', "draw = { image = 64 }"), "draw.image'", "'images'"),
        (MINIMAL.replace("country_shift", "contry_shift"), "unknown task 'contry_shift'", "'country_shift'"),
        (MINIMAL + "[base.optimizer]\nepoch = 3\n", "unknown key 'optimizer.epoch'", "'epochs'"),
        (MINIMAL.replace("demo/map", "demo/mpa"), "unknown preset 'demo/mpa'", "'demo/map'"),
        (
            MINIMAL.replace("trials = 0", 'trials = 4\ncriteria = ["in_domain_auroc"]'),
            "methods.map",
            "'space'",
        ),
        (
            MINIMAL.replace("trials = 0", 'trials = 4\ncriteria = ["in_domain_auroch"]'),
            "in_domain_auroch",
            "mean",
        ),
        (MINIMAL.replace("trials = 0", "trials = 4"), "trials need 'criteria'", "trials = 0"),
        (MINIMAL.replace("trials = 0", 'trials = 0\ncriteria = ["in_domain_auroc"]'), "methods.map", "tuned"),
        (MINIMAL.replace("ensemble = 0", "ensemble = 3"), "an ensemble of 3 of 2 seeds", "2 … seeds"),
        (MINIMAL.replace("ensemble = 0", "ensemble = 1"), "an ensemble of 1", "or 0"),
        (MINIMAL.replace("seeds = 2", "seeds = 0"), "seeds", "greater than or equal to 1"),
        (MINIMAL.replace('data = "data"', ""), "needs one of 'data'", "'draw'"),
        (MINIMAL.replace("methods.map", 'methods."a/b"'), "'a/b' cannot name a folder", "letters"),
        (MINIMAL + 'run = { method = { name = "ensemble" } }', "methods.map: is an ensemble", "members"),
        ("trials = ", "is not TOML", "study.toml"),
    ],
)
def test_what_is_wrong_is_named_with_its_cure(tmp_path, text, key, hint):
    file = written(tmp_path, text)
    with pytest.raises(InputError) as error:
        cells(read_study(file), tmp_path)
    assert key in str(error.value)
    assert hint in str(error.value)


def test_the_file_is_named_and_an_unknown_preset_has_a_nearest_one(tmp_path):
    file = written(tmp_path, MINIMAL.replace("seeds", "sedes"))
    with pytest.raises(InputError, match=r"study\.toml"):
        read_study(file)
    with pytest.raises(InputError, match="Did you mean 'demo'"):
        read_study("dmo")


@pytest.mark.parametrize("name", sorted(study_presets()))
def test_every_preset_fits_its_methods_and_spaces(name, tmp_path):
    study = read_study(name)
    for cell in cells(study, tmp_path):
        runs = trials(study, cell)
        assert len(runs) == study.trials
        assert len({run.hash("f") for run in runs}) == study.trials
        assert all(run.method.name == cell.base.method.name for run in runs)


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


def test_demo_is_as_large_as_promised():
    study = read_study("demo")
    assert len(study.methods) >= 4
    assert study.trials >= 8
    assert study.seeds >= 3
    assert study.ensemble == 3
    assert most_runs(study) == 2 * (study.seeds - 1)


def test_words_override_the_file(tmp_path):
    study = read_study(written(tmp_path, MINIMAL), ["seeds=5", "base.optimizer.epochs=7", "seed=40"])
    (cell,) = cells(study, tmp_path)
    assert cell.base.optimizer.epochs == 7
    assert [run.seed for run in with_seeds(study, cell.base)] == [40, 41, 42, 43, 44]


def test_tables_are_laid_over_each_other():
    config = {"method": "map", "optimizer": {"lr": 0.1, "epochs": 3}}
    own = {"method": {"samples": 2}, "optimizer": {"lr": 0.2}}
    assert merged(config, own) == {
        "method": {"name": "map", "samples": 2},
        "optimizer": {"lr": 0.2, "epochs": 3},
    }
    assert config["optimizer"] == {"lr": 0.1, "epochs": 3}


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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["folds=1"], "folds = 2 or more"),
        (["repeats=2"], "needs folds"),
        (["folds=3", "trials=4", 'criteria=["in_domain_auroc"]'], "would test on"),
    ],
)
def test_a_cross_validation_that_makes_no_sense_is_refused(tmp_path, words, says):
    with pytest.raises(InputError, match=says):
        read_study(written(tmp_path, MINIMAL), words)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (
            MINIMAL.replace("seeds = 2", "seeds = 100").replace("ensemble = 0", "ensemble = 50"),
            "ensembles of 50",
        ),
        (MINIMAL.replace("seeds = 2", "seeds = 1_000_000_000"), "seeds"),
        (MINIMAL.replace("[methods.map]", '[methods."map\\n"]'), "cannot name a folder"),
    ],
)
def test_a_study_that_no_machine_ends_is_refused(tmp_path, text, key):
    with pytest.raises(InputError, match=key):
        read_study(written(tmp_path, text))
