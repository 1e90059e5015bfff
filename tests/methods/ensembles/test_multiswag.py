"""Mixtures of SWAG Gaussians: their shapes against the formulas, and what they are on a known posterior."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.run import make_batches
from retinabench.methods.ensembles import multiswag, weight_moments
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.models.build import build_model
from support.helpers import TINY, make_prepared
from support.linear_gaussian import fitted, make_run, truth

DRAWS = 8_000


def mixture(covariance, components=2):
    """A posterior over two layers of 3 and 2 weights, with arbitrary moments."""
    random = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 1, bias=False), nn.Linear(1, 2, bias=False))
    means = torch.randn(components, 5, generator=random)
    variances = torch.rand(components, 5, generator=random)
    deviations = torch.randn(components, 4, 5, generator=random)
    return multiswag.SwagMixture(model, Bernoulli(), means, variances, deviations, covariance, scale=1.0)


def drawn(posterior, family):
    random = torch.Generator().manual_seed(1)
    return torch.stack([posterior.sample(family, random) for _ in range(DRAWS)]).double()


def moments(posterior, family):
    """Return mean and covariance of one component by the formula, for each component."""
    half = posterior.deviations.transpose(1, 2) @ posterior.deviations / 3
    if family == "diagonal":
        return [(m, v.diag()) for m, v in zip(posterior.means, posterior.variances, strict=True)]
    return [
        (m, 0.5 * (v.diag() + c)) for m, v, c in zip(posterior.means, posterior.variances, half, strict=True)
    ]


@pytest.mark.parametrize("family", multiswag.FAMILIES)
def test_draws_have_mean_and_covariance_of_the_formula(family):
    """A mixture's covariance is the mean of the components' and that of their means; between layers that choose on their
    own it is 0. Fourth moments give the standard errors; each entry within 5 of them, 55 entries in all.
    """
    posterior = mixture(family)
    parts = moments(posterior, family)
    mean = torch.stack([m for m, _ in parts]).mean(dim=0).double()
    expected = torch.stack([c for _, c in parts]).mean(dim=0).double()
    expected = expected + torch.stack([torch.outer(m - mean, m - mean) for m, _ in parts]).mean(dim=0)
    if family == "per_layer":
        expected[:3, 3:] = expected[3:, :3] = 0
    found = drawn(posterior, family)
    centred = found - mean
    products = centred[:, :, None] * centred[:, None, :]
    error = products.std(dim=0) / math.sqrt(DRAWS)
    assert ((products.mean(dim=0) - expected).abs() < 5 * error).all()
    assert (centred.mean(dim=0).abs() < 5 * found.std(dim=0) / math.sqrt(DRAWS)).all()


def test_all_families_take_turns():
    posterior = mixture("all", components=1)
    posterior.variances, posterior.deviations = torch.zeros(1, 5), posterior.deviations[:, :, :5]
    random = torch.Generator().manual_seed(2)
    images = torch.eye(3)
    answers = posterior.predict(images, 6, random)
    # Without variance the diagonal family is a point: its draws are equal, the others' are not.
    assert torch.equal(answers[0], answers[3])
    assert not torch.equal(answers[1], answers[4])
    assert not torch.equal(answers[2], answers[5])


def test_one_low_rank_component_is_swag():
    posterior = mixture("low_rank", components=1)
    one, two = torch.Generator().manual_seed(4), torch.Generator().manual_seed(4)
    torch.randint(1, (), generator=two)
    own = posterior.sample("low_rank", one)
    other = weight_moments.draw(posterior.means[0], posterior.variances[0], posterior.deviations[0], 0.5, two)
    assert torch.equal(own, other)


def test_layers_are_stretches_of_the_flat_weights():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.BatchNorm1d(4), nn.Linear(4, 1))
    assert multiswag.layer_sizes(model) == [(16, 16), (8, 24), (5, 29)]


@pytest.mark.parametrize("path", [pytest.param("sgd", marks=pytest.mark.slow), "sgld"])
def test_what_it_is_on_a_known_posterior(path):
    """Along full-batch SGD a point at the mode: SWAG's spread is that of the gradient's noise. Along SGLD the posterior.

    1,600 iterates whose correlation is about 0.85 from one to the next: an effective number above 100. Variances within
    4 √(2 / 100) of the posterior's, means within 4 deviations / √100; the step's own bias is 5 %.
    """
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


def test_components_are_stretches_of_the_path(tmp_path, monkeypatch):
    words = [*TINY, "method.name=multiswag", "method.components=2", "method.start=0.3"]
    run = load_run(None, words, data=str(make_prepared(tmp_path / "data")))
    data = make_batches(run, load_task(run.data, run.task), torch.device("cpu"))
    seen = []
    collect = weight_moments.Moments.collect
    monkeypatch.setattr(
        weight_moments.Moments,
        "collect",
        lambda self, w: (seen.append((id(self), w.clone())), collect(self, w))[1],
    )
    posterior = multiswag.fit(build_model(run.model, 0), data, run, Checkpoint(), Bernoulli())
    # 12 steps, collected from the fifth on: 8 iterates, 4 for each component.
    assert [seen[0][0] == owner for owner, _ in seen] == [True] * 4 + [False] * 4
    table = torch.stack([weights for _, weights in seen]).double()
    for number, part in enumerate((table[:4], table[4:])):
        assert torch.allclose(posterior.means[number].double(), part.mean(dim=0), atol=1e-6)
        assert torch.allclose(posterior.variances[number].double(), part.var(dim=0, correction=0), atol=1e-8)
    centre = posterior.means.mean(dim=0)
    assert torch.allclose(weight_moments.flat_weights(posterior.model), centre, atol=1e-7)


def test_too_few_iterates_are_refused():
    with pytest.raises(InputError, match="10 iterates are too few for 6 components"):
        fitted(make_run("multiswag", "method.components=6", "optimizer.lr=0.1", "method.per_epoch=20"))
