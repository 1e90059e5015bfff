import math

import numpy as np
import pytest
import torch
from torch import nn

from retinabench.methods import swag
from retinabench.methods.training.likelihood import Bernoulli
from support.helpers import generator
from support.linear_gaussian import fitted, make_run, truth


def test_moments_are_those_of_the_collected_vectors():
    vectors = 0.1 + 1e-3 * torch.randn(30, 7, generator=generator())  # a spread far below the mean, as of weights
    moments = swag.Moments(7, 5, torch.device("cpu"))
    for vector in vectors:
        moments.collect(vector)
    table = vectors.double().numpy()
    assert np.allclose(moments.mean, table.mean(axis=0), rtol=1e-5)
    assert np.allclose(moments.variance, table.var(axis=0), rtol=1e-4)
    running = np.cumsum(table, axis=0) / np.arange(1, 31)[:, None]
    assert np.allclose(moments.deviations, (table - running)[-5:], atol=1e-7)


@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_samples_have_the_covariance_of_the_formula(scale):
    """scale (diag + Dᵀ D / (K - 1)); 4,000 draws, each entry within 5 standard errors √((ab + c²) / 4,000): 11 % of a variance."""
    mean, variance = torch.randn(6, generator=generator()), torch.rand(6, generator=generator(1))
    D = torch.randn(4, 6, generator=generator(2))
    draws, count = generator(3), 4_000
    sampled = torch.stack([swag.draw(mean, variance, D, scale, draws) for _ in range(count)])
    expected = scale * (variance.diag() + D.T @ D / 3)
    diagonal = expected.diagonal()
    error = ((diagonal[:, None] * diagonal + expected.square()) / count).sqrt()
    assert ((sampled.T.cov() - expected).abs() < 5 * error).all()
    assert ((sampled.mean(dim=0) - mean).abs() < 5 * (diagonal / count).sqrt()).all()


DRAWS = 3_000


def mixture(covariance, components=2):
    """A posterior over two layers of 3 and 2 weights, with arbitrary moments."""
    random = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 1, bias=False), nn.Linear(1, 2, bias=False))
    means = torch.randn(components, 5, generator=random)
    variances = torch.rand(components, 5, generator=random)
    deviations = torch.randn(components, 4, 5, generator=random)
    return swag.SwagMixture(model, Bernoulli(), means, variances, deviations, covariance, scale=1.0)


def moments(posterior, family):
    half = posterior.deviations.transpose(1, 2) @ posterior.deviations / 3
    if family == "diagonal":
        return [(m, v.diag()) for m, v in zip(posterior.means, posterior.variances, strict=True)]
    return [(m, 0.5 * (v.diag() + c)) for m, v, c in zip(posterior.means, posterior.variances, half, strict=True)]


@pytest.mark.parametrize("family", swag.FAMILIES)
def test_draws_have_mean_and_covariance_of_the_formula(family):
    """A mixture's covariance is the mean of the components' and that of their means; between layers that choose on their own it is
    0. Fourth moments give the standard errors; each entry within 5 of them, 55 entries in all."""
    posterior = mixture(family)
    parts = moments(posterior, family)
    mean = torch.stack([m for m, _ in parts]).mean(dim=0).double()
    expected = torch.stack([c for _, c in parts]).mean(dim=0).double()
    expected = expected + torch.stack([torch.outer(m - mean, m - mean) for m, _ in parts]).mean(dim=0)
    if family == "per_layer":
        expected[:3, 3:] = expected[3:, :3] = 0
    random = torch.Generator().manual_seed(1)
    found = torch.stack([posterior.sample(family, random) for _ in range(DRAWS)]).double()
    centred = found - mean
    products = centred[:, :, None] * centred[:, None, :]
    error = products.std(dim=0) / math.sqrt(DRAWS)
    assert ((products.mean(dim=0) - expected).abs() < 5 * error).all()
    assert (centred.mean(dim=0).abs() < 5 * found.std(dim=0) / math.sqrt(DRAWS)).all()


@pytest.mark.slow
@pytest.mark.parametrize("path", ["sgd", "sgld"])
def test_what_it_is_on_a_known_posterior(path):
    """Along full-batch SGD a point at the mode: SWAG's spread is that of the gradient's noise. Along SGLD the posterior. 1,600
    iterates whose correlation is about 0.85 from one to the next: an effective number above 100. Variances within 4 √(2 / 100) of
    the posterior's, means within 4 deviations / √100; the step's own bias is 5 %."""
    words = [
        "optimizer.lr=0.1", "method.lr_factor=1", f"method.path={path}", "method.per_epoch=20",
        "method.covariance=diagonal", "method.start=0.2",
    ]  # fmt: skip
    posterior, batches = fitted(make_run("multiswag", *words, epochs=100))
    mean, covariance = truth(batches)
    found = posterior.variances[0].double().numpy() / covariance.diagonal()
    error = abs(posterior.means[0].double().numpy() - mean) / np.sqrt(covariance.diagonal())
    if path == "sgd":
        assert (found < 1e-8).all()
        assert (error < 1e-4).all()
    else:
        assert (abs(np.log(found)) < 4 * math.sqrt(2 / 100) + 0.05).all()
        assert (error < 4 / math.sqrt(100)).all()
