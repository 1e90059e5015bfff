"""Entries and their budget."""

from __future__ import annotations

import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.submissions.entries import check_plan, entries, entry, entry_run, planned, within
from retinabench.fidelity.targets.target import TARGETS
from retinabench.methods.base import FidelitySettings
from support.tiny_target import TRAIN, regression_target


def run_of(method, budget=100, **optimizer):
    chosen = FidelitySettings(name="x", title="x", method=method, optimizer=optimizer)
    return entry_run(chosen, regression_target(), TRAIN, budget, 0)


@pytest.mark.parametrize(
    ("method", "epochs"),
    [
        ({"name": "map"}, 100),
        ({"name": "mfvi", "train_samples": 3}, 33),
        ({"name": "ensemble", "members": 7}, 14),
        ({"name": "ensemble", "members": 3, "member": {"name": "ivon", "train_samples": 2}}, 16),
        ({"name": "laplace", "weights": "diagonal"}, 99),
    ],
)
def test_the_budget_makes_the_epochs(method, epochs):
    run = run_of(method)
    assert run.optimizer.epochs == epochs
    assert planned(run) <= 100
    assert planned(within(run, 1000)) > 100


def test_a_plan_above_the_budget_is_refused_with_what_to_lower():
    with pytest.raises(InputError, match=r"plans 300 gradient .* the budget is 100.* optimizer\.epochs to 33"):
        check_plan(run_of({"name": "mfvi", "train_samples": 3}, epochs=100), 100)
    with pytest.raises(InputError, match=r"Lower method\.members"):
        check_plan(run_of({"name": "ensemble", "members": 101}), 100)


@pytest.mark.parametrize("name", list(entries()))
def test_every_entry_targets_the_stated_posterior_within_the_budget(name):
    for one in TARGETS.values():
        run = entry_run(entry(name), one, one.train, 1000, seed=3)
        assert planned(run) <= 1000
        optimizer = run.optimizer
        assert optimizer.l2 == pytest.approx(1 / (2 * one.train * one.prior_variance), rel=1e-12)
        settings = (optimizer.l2_on, optimizer.reweight, optimizer.augment, optimizer.select)
        assert settings == ("everything", "none", "none", "last")
        if "prior_precision" in type(run.method).model_fields:
            assert run.method.prior_precision == pytest.approx(1 / one.prior_variance)
        if "prior_stddev" in type(run.method).model_fields:
            assert run.method.prior_stddev**2 == pytest.approx(one.prior_variance)
