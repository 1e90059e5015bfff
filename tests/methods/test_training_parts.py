"""Losses and schedules against the reference's own outputs, and what the optimiser is told."""

import numpy as np
import pytest
import torch
from torch import nn

from retinabench.methods.settings import Optimizer
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.loop import make_optimizer
from retinabench.methods.training.losses import BatchInfo, class_weights, cross_entropy
from retinabench.methods.training.schedules import learning_rate


@pytest.mark.parametrize("case", ["mixed", "no_pos", "all_pos", "one_pos"])
def test_minibatch_reweighting_is_the_reference(shared, case):
    golden = np.load(shared("golden", "retina", "loss_minibatch_reweight.npz"))
    labels = torch.from_numpy(golden[f"in_{case}_labels"].astype(np.float32))
    logits = torch.from_numpy(golden[f"in_{case}_logits"])[:, None]
    # The reference computes in float32; so do we: seven digits.
    batch = BatchInfo.of(labels)
    reweighted = cross_entropy(logits, labels, Bernoulli(), "minibatch", batch)
    assert float(reweighted) == pytest.approx(float(golden[f"out_{case}_mean"]), rel=1e-5)
    plain = float(golden[f"out_{case}_plain_bce_mean"])
    assert float(cross_entropy(logits, labels, Bernoulli(), "none", batch)) == pytest.approx(plain, rel=1e-5)


def test_class_weights_give_both_classes_half_of_the_mass():
    weights = class_weights(torch.tensor([1.0, 0, 0, 0, 0]), torch.tensor(0.2))
    assert float(weights.sum()) == pytest.approx(5.0)
    assert float(weights[0]) == pytest.approx(2.5)
    assert float(weights[1:].sum()) == pytest.approx(2.5)


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
