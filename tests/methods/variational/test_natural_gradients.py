"""Optimisers along natural gradients: their start, their step and their width."""

from __future__ import annotations

import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.methods.variational.natural_gradients import (
    NaturalGradientOptimizer,
    initial_hessian,
    next_mean,
)


def test_the_start_is_as_wide_as_asked_and_no_wider_than_the_prior():
    ess, delta = 600.0, 5e-4
    hessian = initial_hessian(0.01, ess, delta)
    assert (ess * (hessian + delta)) ** -0.5 == pytest.approx(0.01)
    with pytest.raises(InputError, match=r"method.std 2 is wider than the prior, 1\.83"):
        initial_hessian(2.0, ess, delta)


def test_a_step_is_that_of_newton_with_the_prior_and_is_clipped():
    mean, momentum, h = torch.tensor([1.0, -2.0]), torch.tensor([0.3, 0.9]), torch.tensor([2.0, 0.1])
    direction = (momentum / 0.5 + 0.2 * mean) / (h + 0.2)
    torch.testing.assert_close(next_mean(mean, momentum, h, 0.1, 0.2, 0.5, 0.0), mean - 0.1 * direction)
    clipped = next_mean(mean, momentum, h, 0.1, 0.2, 0.5, 1.0)
    torch.testing.assert_close(clipped, mean - 0.1 * direction.clamp(-1, 1))
    assert direction[1] > 1


def test_a_first_step_at_the_initial_curvature_is_that_of_sgd():
    """With h = h0 and the bias of the momentum corrected: rate (h0 + δ) (g + δ m) / (h0 + δ) = lr (g + δ m)."""
    w = torch.nn.Parameter(torch.tensor([2.0]))
    optimizer = NaturalGradientOptimizer(
        [w], lr=0.1, lr_factor=1.0, ess=50.0, delta=0.5, hessian=3.0, beta1=0.9, beta2=0.99
    )
    assert float(optimizer.std(w).detach()) == pytest.approx((50 * 3.5) ** -0.5)
    w.grad = torch.tensor([4.0])
    with torch.no_grad():
        optimizer.move(w, torch.tensor([3.0]))
    assert float(w.detach()) == pytest.approx(2 - 0.1 * (4 + 0.5 * 2))


def test_the_target_is_the_stated_posterior_whatever_the_l2_is_on():
    words = ["method=ivon", "method.temperature=0.5", "optimizer.l2=0.01", "optimizer.l2_on=nothing"]
    run = load_run(None, words, data="d")
    found = run.method.target_posterior(run.optimizer, 100)
    assert found.temperature == 0.5
    assert found.prior_variance == pytest.approx(0.5 / (2 * 100 * 0.01))
