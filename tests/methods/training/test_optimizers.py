"""Which parameters the L2 term acts on, and that it is a penalty in the loss."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from retinabench.methods.settings import Optimizer
from retinabench.methods.training.optimizers import (
    learning_rate,
    make_optimizer,
    restore_optimizer,
)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_l2_acts_on_weights_alone_and_equals_the_penalty_in_the_loss(name):
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    l2 = 0.05
    groups = make_optimizer(net, Optimizer(name=name, l2=l2)).param_groups
    assert [group["weight_decay"] for group in groups] == [2 * l2, 0.0]
    assert [p.ndim for p in groups[0]["params"]] == [2]
    # The gradient of l2 * Σ w² is 2 * l2 * w: what weight_decay adds.
    weight = net[0].weight
    (gradient,) = torch.autograd.grad(l2 * weight.square().sum(), weight)
    assert torch.allclose(gradient, groups[0]["weight_decay"] * weight)


@pytest.mark.parametrize(
    ("acts_on", "decayed"), [("weights", [2]), ("norms_and_biases", [1, 1, 1]), ("nothing", [])]
)
def test_what_the_released_l2_acts_on_is_a_named_option(acts_on, decayed):
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    groups = make_optimizer(net, Optimizer(l2=0.05, l2_on=acts_on)).param_groups
    assert [p.ndim for group in groups if group["weight_decay"] for p in group["params"]] == decayed
    assert sum(len(group["params"]) for group in groups) == 4


def test_a_parameter_may_be_exempt_from_the_l2_term():
    net = nn.Linear(3, 2)
    net.rho = nn.Parameter(torch.zeros(2, 3))
    net.rho.no_decay = True
    groups = make_optimizer(net, Optimizer(l2=0.05)).param_groups
    assert [p.shape for p in groups[0]["params"]] == [(2, 3)]
    assert groups[0]["params"][0] is net.weight
    assert any(p is net.rho for p in groups[1]["params"])


@pytest.mark.parametrize(
    ("forge", "says"),
    [
        (lambda s: s["param_groups"][0].update(momentum="x"), "momentum of the optimiser is x"),
        (
            lambda s: s["param_groups"][0].update(weight_decay=float("nan")),
            "weight_decay of the optimiser is nan",
        ),
        (lambda s: s["param_groups"][0].update(nesterov=3), "nesterov of the optimiser is 3"),
        (
            lambda s: s["state"][0].update(momentum_buffer=torch.zeros(7)),
            r"momentum_buffer .* has shape \(7,\)",
        ),
        (
            lambda s: s["state"][0].update(momentum_buffer={"a": 1}),
            "momentum_buffer of the optimiser is {'a': 1}",
        ),
        (lambda s: s["state"][0].update(momentum_buffer=3.0), "momentum_buffer of the optimiser is 3.0"),
    ],
)
def test_the_state_of_another_optimiser_is_refused(forge, says):
    net = nn.Linear(3, 2)
    optimizer = make_optimizer(net, Optimizer())
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    restore_optimizer(make_optimizer(nn.Linear(3, 2), Optimizer()), copy.deepcopy(state))
    forge(state)
    with pytest.raises(ValueError, match=says):
        restore_optimizer(make_optimizer(nn.Linear(3, 2), Optimizer()), state)


@pytest.mark.parametrize("state", [{}, {0: {"velocity": "x"}}])
def test_what_an_optimiser_keeps_from_the_start_is_needed(state):
    optimizer = make_optimizer(nn.Linear(3, 2), Optimizer())
    saved = {**optimizer.state_dict(), "state": state}
    optimizer.state[optimizer.param_groups[0]["params"][0]]["velocity"] = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="lacks a state"):
        restore_optimizer(optimizer, saved)


def test_step_and_linear_schedules_are_the_reference(shared):
    golden = np.load(shared("golden", "retina", "lr_schedules.npz"))
    step = Optimizer(lr=0.03, schedule="step", epochs=90, warmup=1)
    linear = Optimizer(lr=0.023072, schedule="linear", epochs=90, warmup=1, final_lr=0.01)
    for at, in_steps, in_linear in zip(
        golden["in_steps"], golden["out_step"], golden["out_linear"], strict=True
    ):
        assert learning_rate(int(at), 100, step) == pytest.approx(in_steps, rel=1e-6, abs=1e-12)
        assert learning_rate(int(at), 100, linear) == pytest.approx(in_linear, rel=1e-6, abs=1e-12)


def test_cosine_rises_then_falls_to_nothing():
    config = Optimizer(lr=1.0, schedule="cosine", epochs=10, warmup=1)
    rates = [learning_rate(step, 20, config) for step in range(201)]
    assert rates[0] == 0
    assert rates[20] == 1
    assert rates[110] == pytest.approx(0.5)
    assert rates[200] == pytest.approx(0, abs=1e-12)


def test_step_and_linear_schedules_are_the_stated_ones():
    step = Optimizer(lr=0.5, schedule="step", epochs=9, warmup=1)
    rates = [learning_rate(at, 10, step) for at in (0, 5, 10, 29, 30, 59, 60, 89)]
    assert rates == pytest.approx([0, 0.25, 0.5, 0.5, 0.1, 0.1, 0.02, 0.02])
    linear = Optimizer(lr=0.5, schedule="linear", epochs=9, warmup=1, final_lr=0.1)
    # The line goes from step 0 to the 80th, of 90; then the rate stays.
    assert learning_rate(40, 10, linear) == pytest.approx(0.5 * (0.5 + 0.5 * 0.1))
    assert learning_rate(80, 10, linear) == learning_rate(89, 10, linear) == pytest.approx(0.05)
