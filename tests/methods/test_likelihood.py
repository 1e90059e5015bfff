"""Likelihoods and expected losses."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn
from torch.nn.functional import softplus

from retinabench.methods.training import likelihood as module
from retinabench.methods.training.likelihood import Bernoulli, Categorical, Gaussian, MultiLabel, expected_loss
from support.helpers import generator


@pytest.mark.parametrize("floor", [0.0, 0.3])
def test_the_gaussian_is_that_of_scipy_and_of_pytorch(floor):
    outputs = 3 * torch.randn(50, 2, generator=generator(), dtype=torch.float64)
    y = torch.randn(50, generator=generator(1)).double()
    likelihood = Gaussian(floor)
    ours = likelihood.negative_log_likelihood(outputs, y)
    assert torch.allclose(likelihood.predictive(outputs)[:, 1], softplus(outputs[:, 1].float()) + floor)
    std = floor + np.log1p(np.exp(outputs[:, 1].numpy()))
    assert np.allclose(ours, -norm(outputs[:, 0].numpy(), std).logpdf(y.numpy()), rtol=1e-10)
    variance = (softplus(outputs[:, 1]) + floor).square()
    oracle = nn.functional.gaussian_nll_loss(outputs[:, 0], y, variance, full=True, reduction="none", eps=1e-12)
    assert torch.allclose(ours, oracle, rtol=1e-8)


def test_one_logit_is_the_softmax_of_two():
    logits, y = torch.randn(20, 1, generator=generator()), torch.randint(2, (20,), generator=generator(1))
    two = torch.cat([torch.zeros(20, 1), logits], dim=1)
    losses = Categorical(2).negative_log_likelihood(two, y)
    assert torch.allclose(Bernoulli().negative_log_likelihood(logits, y.float()), losses, atol=1e-6)
    assert torch.allclose(losses, -two.log_softmax(dim=1)[torch.arange(20), y], atol=1e-6)


def test_labels_that_are_unknown_count_in_no_loss():
    outputs = torch.randn(4, 3, generator=generator())
    labels = torch.tensor([[1.0, 0, 1], [0, torch.nan, 1], [torch.nan, torch.nan, torch.nan], [1, 1, torch.nan]])
    logs = -torch.where(labels > 0.5, outputs, -outputs).sigmoid().log().double()
    rows = [logs[0].mean(), logs[1, [0, 2]].mean(), torch.tensor(0.0), logs[3, :2].mean()]
    likelihood = MultiLabel(3)
    found = likelihood.negative_log_likelihood(outputs, labels)
    assert found.numpy() == pytest.approx([float(row) for row in rows], rel=1e-5)
    known = torch.cat([logs[0], logs[1, [0, 2]], logs[3, :2]])
    assert float(likelihood.mean_loss(outputs, labels)) == pytest.approx(float(known.mean()), rel=1e-5)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(4), Gaussian(0.1), MultiLabel(3)], ids=str)
def test_the_information_is_the_squared_root_and_the_covariance_of_the_score(likelihood):
    """Λ = Rᵀ R, and Λ = E[s sᵀ], s the gradient of log p: 40,000 draws, 5 standard errors of at most 3 Λ."""
    outputs = torch.randn(1, likelihood.outputs, generator=generator(), dtype=torch.float64)
    information = likelihood.information(outputs)[0]
    units = torch.eye(likelihood.outputs, dtype=torch.float64)
    root = torch.stack([likelihood.root_times(outputs[0], v) for v in units], dim=1)
    assert torch.allclose(root.T @ root, information)
    many = outputs.expand(40_000, -1).clone().requires_grad_(True)
    labels = likelihood.sample(many.detach(), generator(1))
    labels = labels if labels.dtype == torch.int64 else labels.double()
    scale = likelihood.outputs if isinstance(likelihood, MultiLabel) else 1  # its losses are means over labels
    (score,) = torch.autograd.grad(scale * likelihood.negative_log_likelihood(many, labels).sum(), many)
    error = 5 * 3 * float(information.diagonal().max()) / 200
    assert torch.allclose(score.T @ score / 40_000, information, atol=error)


NODES, WEIGHTS = (torch.from_numpy(values) for values in np.polynomial.hermite_e.hermegauss(60))
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def case(outputs, random, n=30):
    draws = torch.Generator().manual_seed(0)
    mean = 3 * torch.randn(n, outputs, generator=draws, dtype=torch.float64)
    variance = 4 * torch.rand(n, random, generator=draws, dtype=torch.float64)
    return mean, variance, draws


def test_the_gaussian_s_is_the_expectation_itself():
    mean, variance, draws = case(2, module.random_outputs(Gaussian()))
    labels = torch.randn(30, generator=draws).double()
    values = mean[:, :1] + variance.sqrt() * NODES
    losses = [Gaussian().negative_log_likelihood(torch.stack([f, mean[:, 1]], 1), labels) for f in values.unbind(1)]
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
    outputs = (mean + variance.sqrt() * noise).flatten(0, 1)
    losses = Categorical(4).negative_log_likelihood(outputs, labels.repeat(len(noise))).view(len(noise), 8)
    error = losses.std(dim=0) / len(losses) ** 0.5
    assert (expected_loss(Categorical(4), mean, variance, labels) >= losses.mean(dim=0) - 5 * error).all()
