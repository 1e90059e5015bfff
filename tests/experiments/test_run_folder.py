"""The name of a run's folder, and what is read from it."""

from __future__ import annotations

import json
import shutil

import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute
from retinabench.experiments.run_folder import describe, finished_run, folder_name, load_posterior, read_run
from support.helpers import TINY, make_prepared


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


def test_a_run_knows_its_data_and_keeps_what_it_needs_of_them(tmp_path):
    data = make_prepared(tmp_path / "data")
    run = load_run(None, [*TINY, "task=in_domain", "optimizer.epochs=1"], data=str(data))
    folder = execute(run, tmp_path / "runs", Resources("cpu"))
    found = finished_run(folder)
    assert found.run == run
    assert found.training_data().data.fingerprint == found.fingerprint
    assert found.described() == found.inputs
    assert found.inputs.images == 64
    other = run.model_copy(update={"seed": 7})
    assert found.member(run) == folder
    assert found.member(other) == folder.with_name(found.member(other).name) != folder
    shutil.rmtree(data)
    make_prepared(data, seed=5)  # other images in the same place
    assert finished_run(folder).training_data() is None
    (folder / "inputs.json").unlink()  # as an earlier version left it
    (folder / "SHA256SUMS").unlink(missing_ok=True)
    with pytest.raises(InputError, match="was trained on other data than"):
        finished_run(folder).described()
    (folder / "done").unlink()
    with pytest.raises(InputError, match="holds no finished run"):
        finished_run(folder)
    assert json.loads((folder / "run.json").read_text())["fingerprint"] == found.fingerprint
