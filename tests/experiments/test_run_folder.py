"""The name of a run's folder, and what is read from it."""

import json

import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.run_folder import describe, folder_name, load_posterior, read_run


def run(*words, **given):
    return load_run(None, ["model.name=lenet", *words], data="d", **given)


def test_a_folder_is_named_by_what_it_is_and_by_its_hash():
    one = run("method=dropout", seed=2)
    assert describe(one) == "dropout lenet seed 2"
    assert folder_name(one, "f") == f"dropout-lenet-seed-2-{one.hash('f')}"
    assert folder_name(one, "g") != folder_name(one, "f")
    folds = run("cross_validation.folds=5", "cross_validation.repeat=1", "cross_validation.fold=3")
    assert describe(folds) == "map lenet seed 0 fold 3 of 5 folds repeat 1"


def test_the_settings_make_the_round_trip(tmp_path):
    one = run("method=mfvi", "method.samples=3")
    (tmp_path / "run.json").write_text(json.dumps({"run": one.model_dump(mode="json")}))
    assert read_run(tmp_path) == one
    with pytest.raises(InputError, match=r"holds no finished training \(posterior\.pt is missing\)"):
        load_posterior(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"run": {"model": {"name": "lenet"}, "data": 3}}'])
def test_a_damaged_description_is_named(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError, match=r"run\.json"):
        read_run(tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(InputError, match=r"holds no run \(run\.json is missing\)"):
        read_run(tmp_path)
