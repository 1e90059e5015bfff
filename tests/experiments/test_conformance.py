"""Each check sees the fault that it is for, on runs that are made up; `tests/conformance` runs them on every method."""

import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.experiments.conformance import check_method, easy_points, errors_of, find_method
from retinabench.methods.registry import METHODS


@pytest.mark.parametrize("name", ["bernoulli", "categorical", "gaussian", "multilabel"])
def test_the_truth_has_no_error_and_a_constant_that_of_the_best_constant(name):
    inputs, targets = easy_points(name)
    assert inputs.shape == (120, 3)
    one_hot = torch.nn.functional.one_hot(targets, 3).float() if name == "categorical" else targets
    columns = {
        "bernoulli": torch.stack([1 - one_hot, one_hot], dim=1) if name == "bernoulli" else None,
        "gaussian": torch.stack([one_hot, torch.full((120,), 9.0)], dim=1) if name == "gaussian" else None,
    }.get(name, one_hot)
    error, constant = errors_of(name, columns, targets)
    assert error == 0
    mean = columns.mean(dim=0).expand_as(columns)
    assert errors_of(name, mean, targets)[0] == pytest.approx(constant, rel=1e-5)
    assert constant == pytest.approx(float(one_hot.var(dim=0, unbiased=False).mean()), rel=1e-4)


UNSEEDED = """
from retinabench.methods.map import *
from retinabench.methods import map as correct
import torch
from typing import Literal

class Config(correct.Config):
    name: Literal["unseeded"] = "unseeded"

def fit(model, batches, run, *rest):
    for parameter in model.parameters():
        parameter.data += 0.01 * torch.randn(parameter.shape)
    return correct.fit(model, batches, run, *rest)
"""


def test_a_method_that_draws_from_the_global_generator_does_not_conform(tmp_path):
    (tmp_path / "unseeded.py").write_text(UNSEEDED)
    name = find_method(str(tmp_path / "unseeded.py"))
    try:
        found = {one.check: one.problem for one in check_method(name, tmp_path, only=("learns", "is_reproducible"))}
    finally:
        METHODS.remove(name)
    assert found["learns"] == ""
    assert "draws from a generator that is not derived from the seed" in found["is_reproducible"]


FORGETFUL = """
from retinabench.methods.map import *
from retinabench.methods import map as correct
from retinabench.methods.training.loop import train
from typing import Literal

class Config(correct.Config):
    name: Literal["forgetful"] = "forgetful"

def fit(model, batches, run, checkpoint, likelihood):
    def objective(inputs, labels, batch):
        return {"loss": likelihood.negative_log_likelihood(model(inputs), labels).mean()}
    return train(build(model, run, likelihood), batches, run, checkpoint, objective=objective)
"""


def test_a_method_that_leaves_the_class_weights_out_does_not_conform(tmp_path):
    """Its mean loss is returned as a scalar; the same losses as they are, (B,), conform."""
    problems = {}
    for reduction in (".mean()", ""):
        name = f"forgetful{len(reduction)}"
        text = FORGETFUL.replace(".mean()", reduction).replace('"forgetful"', f'"{name}"')
        (tmp_path / f"{name}.py").write_text(text)
        assert find_method(str(tmp_path / f"{name}.py")) == name
        try:
            (outcome,) = check_method(name, tmp_path / name, only=("weighs_classes",))
        finally:
            METHODS.remove(name)
        problems[reduction] = outcome.problem
    assert problems[""] == ""
    assert "the loss is not weighted. Return losses of shape (B,)" in problems[".mean()"]


def test_what_is_no_method_is_named(tmp_path):
    (tmp_path / "empty.py").write_text('"""Nothing."""\n')
    with pytest.raises(InputError, match="is not a method"):
        find_method(str(tmp_path / "empty.py"))
    with pytest.raises(InputError, match=r"unknown method .mapp.*map"):
        find_method("mapp")
    assert find_method("map") == "map"


def test_a_file_with_the_name_of_a_built_in_method_is_refused(tmp_path):
    (tmp_path / "clash.py").write_text(UNSEEDED.replace('"unseeded"', '"map"'))
    with pytest.raises(InputError, match=r"clash\.py: the name 'map' is taken by a method of retinabench"):
        find_method(str(tmp_path / "clash.py"))
    assert find_method("retinabench.methods.map") == "map"


def test_a_network_without_the_choices_of_the_usual_one_is_checked(tmp_path):
    (found,) = check_method("laplace", tmp_path, ("model.name=lenet",), only=("learns",), size=32)
    assert "Leave out" not in found.problem
