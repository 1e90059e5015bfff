"""Bounded spectral norms against the singular values of NumPy."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from retinabench.models.spectral_norm import bound_spectral_norms


def largest(weight):
    return np.linalg.svd(weight.detach().flatten(1).numpy(), compute_uv=False)[0]


def test_a_norm_above_the_bound_becomes_the_bound_and_one_below_stays():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 4))
    before = [model[0].weight.detach().clone(), model[2].weight.detach().clone()]
    with torch.no_grad():
        model[0].weight.mul_(20)
        model[2].weight.mul_(0.01)
    assert bound_spectral_norms(model, 1.5, torch.Generator().manual_seed(0)) == 2
    for _ in range(50):  # a power iteration each
        model.train()(torch.randn(2, 3, 3, 3))
    assert abs(largest(model.eval()[0].weight) - 1.5) < 0.01
    assert torch.allclose(model[2].weight, 0.01 * before[1])
    assert torch.allclose(
        model[0].weight / largest(model[0].weight), before[0] / largest(before[0]), atol=1e-5
    )


def test_layers_that_are_not_trained_stay_as_they_are():
    layer = nn.Linear(3, 3)
    layer.weight.requires_grad_(False)
    assert bound_spectral_norms(layer, 1.0, torch.Generator()) == 0
