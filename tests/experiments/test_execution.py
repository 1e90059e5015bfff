"""What the run engine refuses before it computes anything."""

from __future__ import annotations

import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources, check_likelihood, is_composed
from retinabench.experiments.run import execute
from retinabench.methods import map as map_method
from retinabench.methods.registry import METHODS
from retinabench.methods.training.likelihood import Bernoulli, Categorical, Gaussian, MultiLabel
from support.helpers import make_prepared


@pytest.mark.parametrize("name", METHODS)
def test_a_method_supports_the_likelihoods_that_it_declares(name):
    run = load_run(None, [f"method.name={name}"], data="d")
    for likelihood in (Bernoulli(), Categorical(5), Gaussian(), MultiLabel(3)):
        if likelihood.name in run.method.supported():
            check_likelihood(run, likelihood)
        else:
            with pytest.raises(
                InputError, match=f"'{name}' does not support the likelihood {likelihood.name}"
            ):
                check_likelihood(run, likelihood)


def test_an_ensemble_supports_what_its_members_do():
    run = load_run(None, ["method.name=ensemble", "method.member.name=temperature"], data="d")
    assert run.method.supported() == ("bernoulli",)


def test_an_unsupported_likelihood_is_refused_before_a_folder_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(map_method.Config, "likelihoods", ("categorical", "gaussian"))
    run = load_run(None, [], data=str(make_prepared(tmp_path / "data")))
    with pytest.raises(
        InputError, match=r"'map' does not support .*bernoulli.*supports categorical, gaussian"
    ):
        execute(run, tmp_path / "runs", Resources("cpu"))
    assert not (tmp_path / "runs").exists()


def test_an_absent_device_is_refused_in_one_line():
    with pytest.raises(InputError, match="no device 'tpu' here"):
        Resources("tpu").torch_device()


def test_composed_methods_are_those_with_member_runs():
    assert {name for name, method in METHODS.items() if is_composed(method)} == {"ensemble", "temperature"}
