import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.study.definition import read_study, study_presets
from retinabench.experiments.study.study import cells, trials
from support.studies import MINIMAL, written


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
        (MINIMAL.replace("trials = 0", 'trials = 4\ncriteria = ["in_domain_auroc"]'), "methods.map", "'space'"),
        (MINIMAL.replace("trials = 0", 'trials = 4\ncriteria = ["in_domain_auroch"]'), "in_domain_auroch", "mean"),
        (MINIMAL.replace("trials = 0", "trials = 4"), "trials need 'criteria'", "trials = 0"),
        (MINIMAL.replace("trials = 0", 'trials = 0\ncriteria = ["in_domain_auroc"]'), "methods.map", "tuned"),
        (MINIMAL.replace("ensemble = 0", "ensemble = 3"), "an ensemble of 3 of 2 seeds", "2 … seeds"),
        (MINIMAL.replace("ensemble = 0", "ensemble = 1"), "an ensemble of 1", "or 0"),
        (MINIMAL.replace("seeds = 2", "seeds = 0"), "seeds", "greater than or equal to 1"),
        (MINIMAL.replace('data = "data"', ""), "needs one of 'data'", "'draw'"),
        (MINIMAL.replace("methods.map", 'methods."a/b"'), "'a/b' cannot name a folder", "letters"),
        (MINIMAL + 'run = { method = { name = "ensemble" } }', "methods.map: is an ensemble", "members"),
        (
            MINIMAL.replace("methods.map", "methods.mine").replace('config = "demo/map"', ""),
            "methods.mine: no method is named", "Set methods.mine.run.method.name",
        ),
        ("trials = ", "is not TOML", "study.toml"),
        (MINIMAL.replace("seeds = 2", "seeds = 100").replace("ensemble = 0", "ensemble = 50"), "ensembles of 50", ""),
        (MINIMAL.replace("seeds = 2", "seeds = 1_000_000_000"), "seeds", ""),
        (MINIMAL.replace("[methods.map]", '[methods."map\\n"]'), "cannot name a folder", ""),
        ("folds = 1" + MINIMAL, "folds = 2 or more", ""),
        ("repeats = 2" + MINIMAL, "needs folds", ""),
        (
            "folds = 3" + MINIMAL.replace("trials = 0", 'trials = 4\ncriteria = ["in_domain_auroc"]'),
            "would test on", "",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_cure(tmp_path, text, key, hint):
    file = written(tmp_path, text)
    with pytest.raises(InputError) as error:
        cells(read_study(file), tmp_path)
    assert key in str(error.value)
    assert hint in str(error.value)


@pytest.mark.parametrize("name", sorted(study_presets()))
def test_every_preset_fits_its_methods_and_spaces(name, tmp_path):
    study = read_study(name)
    for cell in cells(study, tmp_path):
        runs = trials(study, cell)
        assert len(runs) == study.trials
        assert len({run.hash("f") for run in runs}) == study.trials
        assert all(run.method.name == cell.base.method.name for run in runs)


def test_the_label_names_the_method_where_nothing_else_does(tmp_path):
    text = MINIMAL.replace("methods.map", "methods.dropout")
    by_label = written(tmp_path, text.replace('config = "demo/map"', "run = { method = { rate = 0.3 } }"))
    (cell,) = cells(read_study(by_label), tmp_path)
    assert (cell.base.method.name, cell.base.method.rate) == ("dropout", 0.3)
    (cell,) = cells(read_study(written(tmp_path, text)), tmp_path)
    assert cell.base.method.name == "map"  # as its configuration says
    other = written(tmp_path, text.replace("demo/map", "real/frozen").replace("dropout", "mine"))
    (cell,) = cells(read_study(other), tmp_path)
    assert cell.base.method.name == "map"  # the method of a configuration that names none
