"""Several shifted data sets in one study: trained once, predicted and reported on each."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute
from retinabench.experiments.study.definition import Study
from retinabench.experiments.study.runner import compute
from retinabench.methods.training import loop
from retinabench.methods.training.checkpoint import load_tensors
from retinabench.predictions.io import read_predictions
from support.helpers import make_prepared
from support.studies import TINY, Serial

HOME = (("in_domain", "train", 64), ("in_domain", "validation", 24), ("in_domain", "test", 32))
AWAY = HOME[1:]


def definition(root, **changes):
    task = {"data": str(root / "home"), "shifted": [str(root / "near"), str(root / "far")]}
    return Study(**{
        "tasks": {"country_shift": task}, "methods": {"map": {}}, "base": TINY, "trials": 0, "seeds": 1,
        "ensemble": 0, "bootstrap": 0, **changes,
    })  # fmt: skip


def test_a_list_makes_a_task_of_each_which_is_trained_in_the_first(tmp_path):
    study = definition(tmp_path)
    near, far = study.tasks["country_shift"], study.tasks["country_shift-far"]
    assert (near.shifted, near.trained_in) == (str(tmp_path / "near"), "")
    assert (far.task, far.shifted, far.trained_in) == (
        "country_shift",
        str(tmp_path / "far"),
        "country_shift",
    )
    assert Study(**study.model_dump()) == study
    twice = [str(tmp_path / name / "near") for name in "abc"]
    with pytest.raises(ValidationError, match="would be called country_shift-near"):
        definition(tmp_path, tasks={"country_shift": {"data": "d", "shifted": twice}})


@pytest.mark.parametrize("labels", [("deterministic", "dropout"), ("dropout", "deterministic")])
def test_a_method_on_the_weights_of_another_trains_nothing(tmp_path, monkeypatch, labels):
    make_prepared(tmp_path / "home", parts=HOME)
    for seed, name in enumerate(("near", "far"), start=1):
        make_prepared(tmp_path / name, parts=AWAY, seed=seed)
    epochs = []
    original = loop._epoch
    monkeypatch.setattr(loop, "_epoch", lambda *given: epochs.append(given[6]) or original(*given))
    member = {"name": "dropout", "samples": 3}
    runs = {
        "dropout": {"run": {"method": member}},
        "deterministic": {"run": {"method": {"name": "dropout_off", "member": member}}},
    }
    study = definition(tmp_path, methods={label: runs[label] for label in labels})
    chosen = compute(study, tmp_path / "out", Serial())
    assert epochs == [0, 1]  # of one run, that of MC dropout
    assert {choice.folders[0].parent for choice in chosen} == {
        tmp_path / "out" / "country_shift" / "dropout" / "runs"
    }
    weights = {
        (choice.cell.task, choice.cell.method): load_tensors(choice.folders[0] / "posterior.pt")
        for choice in chosen
    }
    assert len(weights) == 4
    first, *others = weights.values()
    tensors = {name: value for name, value in first.items() if isinstance(value, torch.Tensor)}
    assert tensors
    assert all(torch.equal(one[name], value) for one in others for name, value in tensors.items())


def test_each_data_set_is_predicted_with_the_weights_of_one_training(tmp_path, monkeypatch):
    make_prepared(tmp_path / "home", parts=HOME)
    make_prepared(tmp_path / "near", parts=AWAY, seed=1)
    make_prepared(tmp_path / "far", parts=AWAY, seed=2)
    epochs = []
    original = loop._epoch
    monkeypatch.setattr(loop, "_epoch", lambda *given: epochs.append(given[6]) or original(*given))
    chosen = compute(definition(tmp_path), tmp_path / "out", Serial())
    assert epochs == [0, 1]  # two epochs of one run
    near, far = (read_predictions(choice.folders[0] / "predictions.parquet") for choice in chosen)
    inside = [one.select(domain="in_domain") for one in (near, far)]
    assert (inside[0].prob == inside[1].prob).all()
    outside = [one.select(domain="shifted") for one in (near, far)]
    assert not set(outside[0].prob.tolist()) & set(outside[1].prob.tolist())
    # A run that is damaged gives no weights, and does not stop another one: that is trained.
    (chosen[0].folders[0] / "run.json").write_text("{")
    (chosen[1].folders[0] / "run.json").write_text("{")
    make_prepared(tmp_path / "third", parts=AWAY, seed=3)
    run = chosen[0].run.model_copy(update={"shifted": str(tmp_path / "third")})
    execute(run, chosen[0].cell.runs, Resources("cpu"))
    assert epochs == [0, 1, 0, 1]
