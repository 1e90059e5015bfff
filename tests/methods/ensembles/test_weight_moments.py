"""Running moments of the weights, and draws of the Gaussian that they give."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from retinabench.experiments.config import load_run
from retinabench.methods.ensembles import weight_moments
from retinabench.models.build import build_model
from support.helpers import TINY


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_moments_are_those_of_the_collected_vectors():
    vectors = 0.1 + 1e-3 * torch.randn(
        30, 7, generator=generator()
    )  # a spread far below the mean, as of weights
    moments = weight_moments.Moments(7, 5, torch.device("cpu"))
    for vector in vectors:
        moments.collect(vector)
    table = vectors.double().numpy()
    assert np.allclose(moments.mean, table.mean(axis=0), rtol=1e-5)
    assert np.allclose(moments.variance, table.var(axis=0), rtol=1e-4)
    running = np.cumsum(table, axis=0) / np.arange(1, 31)[:, None]
    assert np.allclose(moments.deviations, (table - running)[-5:], atol=1e-7)


def test_collecting_continues_after_saving():
    vectors = torch.randn(9, 4, generator=generator())
    whole, first, second = (weight_moments.Moments(4, 3, torch.device("cpu")) for _ in range(3))
    for vector in vectors:
        whole.collect(vector)
    for vector in vectors[:5]:
        first.collect(vector)
    second.load_state_dict(first.state_dict())
    for vector in vectors[5:]:
        second.collect(vector)
    assert torch.equal(second.mean, whole.mean)
    assert torch.equal(second.variance, whole.variance)
    assert torch.equal(second.deviations, whole.deviations)


@pytest.mark.parametrize(
    "change", [{"count": None}, {"count": -1}, {"mean": torch.zeros(6)}, {"deviations": torch.zeros(7, 2)}]
)
def test_moments_of_another_network_are_refused(change):
    moments = weight_moments.Moments(7, 5, torch.device("cpu"))
    with pytest.raises(ValueError, match=r"count is|has shape"):
        moments.load_state_dict({**moments.state_dict(), **change})


@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_samples_have_the_covariance_of_the_formula(scale):
    """scale (diag + Dᵀ D / (K - 1)); 10,000 draws, each entry within 5 standard errors √((ab + c²) / 10,000)."""
    mean, variance = torch.randn(6, generator=generator()), torch.rand(6, generator=generator(1))
    D = torch.randn(4, 6, generator=generator(2))
    draws, count = generator(3), 10_000
    sampled = torch.stack([weight_moments.draw(mean, variance, D, scale, draws) for _ in range(count)])
    expected = scale * (variance.diag() + D.T @ D / 3)
    diagonal = expected.diagonal()
    error = ((diagonal[:, None] * diagonal + expected.square()) / count).sqrt()
    assert ((sampled.T.cov() - expected).abs() < 5 * error).all()
    assert ((sampled.mean(dim=0) - mean).abs() < 5 * (diagonal / count).sqrt()).all()


def test_weights_survive_the_flat_vector():
    model = build_model(load_run(None, TINY, data="d").model, 0)
    back = weight_moments.named_weights(model, weight_moments.flat_weights(model))
    for name, p in model.named_parameters():
        assert torch.equal(back[name], p)
        assert back[name].stride() == p.stride()
