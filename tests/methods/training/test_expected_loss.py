"""Bounds of expected losses against quadrature and Monte Carlo."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from retinabench.methods.training.expected_loss import expected_loss, random_outputs
from retinabench.methods.training.likelihood import Bernoulli, Categorical, Gaussian, MultiLabel

NODES, WEIGHTS = (torch.from_numpy(values) for values in np.polynomial.hermite_e.hermegauss(60))
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def case(outputs, random, n=30):
    draws = torch.Generator().manual_seed(0)
    mean = 3 * torch.randn(n, outputs, generator=draws, dtype=torch.float64)
    variance = 4 * torch.rand(n, random, generator=draws, dtype=torch.float64)
    return mean, variance, draws


def test_the_gaussian_s_is_the_expectation_itself():
    mean, variance, draws = case(2, random_outputs(Gaussian()))
    labels = torch.randn(30, generator=draws).double()
    values = mean[:, :1] + variance.sqrt() * NODES
    losses = [
        Gaussian().negative_log_likelihood(torch.stack([f, mean[:, 1]], 1), labels) for f in values.unbind(1)
    ]
    exact = torch.stack(losses, 1) @ WEIGHTS
    assert torch.allclose(expected_loss(Gaussian(), mean, variance, labels), exact, rtol=1e-9)


def test_two_classes_are_bounded_more_tightly_than_by_jensen_s_inequality():
    mean, variance, draws = case(1, 1)
    labels = torch.randint(2, (30,), generator=draws).double()
    values = mean + variance.sqrt() * NODES
    losses = [Bernoulli().negative_log_likelihood(f[:, None], labels) for f in values.unbind(1)]
    exact = torch.stack(losses, 1) @ WEIGHTS
    bound = expected_loss(Bernoulli(), mean, variance, labels)
    jensen = Bernoulli().negative_log_likelihood(mean, labels) + variance[:, 0] / 8
    assert (bound >= exact - 1e-9).all()
    assert (bound <= jensen + 1e-12).all()
    assert (bound - exact).max() < 0.2


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(4), MultiLabel(3)])
def test_without_variance_it_is_the_loss(likelihood):
    mean, _, draws = case(likelihood.outputs, likelihood.outputs)
    labels = likelihood.sample(mean.float(), draws)
    labels = labels if labels.dtype == torch.int64 else labels.double()
    if labels.ndim == 2:
        labels[0, 1] = math.nan
    ours = expected_loss(likelihood, mean, torch.zeros_like(mean), labels)
    assert torch.allclose(ours, likelihood.negative_log_likelihood(mean, labels), rtol=1e-9)


def test_several_classes_are_bounded():
    """20,000 draws: the bound may be below their mean by 5 standard errors."""
    mean, variance, draws = case(4, 4, n=8)
    labels = torch.randint(4, (8,), generator=draws)
    noise = torch.randn(20_000, 8, 4, generator=draws, dtype=torch.float64)
    losses = torch.stack(
        [Categorical(4).negative_log_likelihood(mean + variance.sqrt() * one, labels) for one in noise]
    )
    error = losses.std(dim=0) / len(losses) ** 0.5
    assert (expected_loss(Categorical(4), mean, variance, labels) >= losses.mean(dim=0) - 5 * error).all()
