"""Covariances of infinitely wide networks against wide random ones, and in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from retinabench.fidelity.submissions.untrained.kernels import relu_covariance
from retinabench.models.networks.small import MLP

VARIANCE = 1 / 30


def generator(seed):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


@pytest.mark.parametrize(("width", "networks"), [(50, 40_000), (1000, 4_000)])
def test_the_kernel_is_the_covariance_of_random_networks(width, networks):
    """Five standard errors, seed 1: a sample covariance of S Gaussian draws has variance (k_ii k_jj + k_ij²) / S.

    The outputs of 50 units are not quite Gaussian; their kurtosis adds about 6 / 50 to the first of the two terms.
    """
    network, random = MLP(3, width, 2, nn.ReLU).double(), generator(1)
    x = torch.cat([2 * normal(4, 3), torch.zeros(1, 3, dtype=torch.float64)])
    x[3] = x[2] * (1 + 1e-9)  # inputs that are alike but for rounding
    weights = {
        name: VARIANCE**0.5 * torch.randn(networks, *p.shape, generator=random, dtype=torch.float64)
        for name, p in network.named_parameters()
    }
    with torch.no_grad():
        outputs = vmap(lambda w: functional_call(network, w, (x,)), chunk_size=2000)(weights)
    k = relu_covariance(x, x, VARIANCE, width)
    diagonal = k.diagonal()
    error = (((1 + 6 / width) * diagonal[:, None] * diagonal + k.square()) / networks).sqrt()
    for output in range(2):
        sampled = outputs[:, :, output].T @ outputs[:, :, output] / networks
        assert ((sampled - k).abs() < 5 * error).all()
    # Mean and raw deviation share their hidden units and are uncorrelated nevertheless.
    across = outputs[:, :, 0].T @ outputs[:, :, 1] / networks
    assert (
        across.abs() < 5 * ((1 + 2 / width) * (diagonal[:, None] * diagonal + k.square()) / networks).sqrt()
    ).all()


def test_the_kernel_s_values_at_known_angles():
    """E[relu(z)²] = k / 2; at right angles E[relu(z) relu(z')] = √(k k') / 2π; opposite inputs share nothing."""
    x = torch.tensor(
        [[1.0], [-1.0]], dtype=torch.float64
    )  # with the bias: (1, 1) and (-1, 1), at right angles
    k = relu_covariance(x, x, 0.5, 10)
    assert k[0, 0].item() == pytest.approx(0.5 * (1 + 10 * 1.0 / 2))
    assert k[0, 1].item() == pytest.approx(0.5 * (1 + 10 * 1.0 / (2 * np.pi)))
