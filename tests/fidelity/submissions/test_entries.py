"""Entries and their budget."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap

from retinabench.core.errors import InputError, WorkError
from retinabench.fidelity.submissions.entries import (
    EXAMPLES,
    GradientMeter,
    check_plan,
    entries,
    entry,
    entry_run,
    planned,
    within,
)
from retinabench.fidelity.targets.target import TARGETS
from retinabench.methods.base import FidelitySettings
from support.tiny_target import TRAIN, regression_target


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


@pytest.fixture
def metered():
    meter = GradientMeter(examples=10, limit=None)
    return meter, meter.watch(network())


def test_passes_are_counted_without_gradients_too_and_predictions_are_not(metered):
    meter, model = metered
    x = torch.ones(7, 3)
    model(x)
    with torch.no_grad():
        model(x[:3])
    assert meter.used == 1
    meter.stopped = True
    model(x)
    assert meter.used == 1


def test_weights_from_outside_are_counted(metered):
    meter, model = metered
    weights = {name: p.detach() for name, p in model.named_parameters()}
    functional_call(model, weights, (torch.ones(5, 3),))
    assert meter.counts[EXAMPLES] == 5


def test_copies_that_run_at_once_are_counted_one_by_one(metered):
    meter, model = metered
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights, x):
        return functional_call(model, weights, (x,)).square().sum()

    chains = {name: torch.stack([p] * 6) for name, p in weights.items()}
    vmap(grad(loss), in_dims=(0, None))(chains, torch.ones(5, 3))
    assert meter.counts[EXAMPLES] == 6 * 5
    # One Jacobian per example, the examples at once: one forward pass each.
    vmap(jacrev(lambda w, x: functional_call(model, w, (x[None],))[0]), in_dims=(None, 0))(weights, torch.ones(9, 3))
    assert meter.counts[EXAMPLES] == 6 * 5 + 9


def test_a_method_that_takes_more_than_it_planned_is_stopped():
    meter = GradientMeter(examples=10, limit=2)
    model = meter.watch(network())
    for _ in range(4):
        model(torch.ones(5, 3))
    with pytest.raises(WorkError, match="more than the 2 gradient evaluations"):
        model(torch.ones(1, 3))


def test_counts_go_on_from_those_that_a_checkpoint_brings_back():
    meter = GradientMeter(examples=10, limit=None, counts={EXAMPLES: 20})
    meter.watch(network())(torch.ones(10, 3))
    assert meter.used == 3


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
