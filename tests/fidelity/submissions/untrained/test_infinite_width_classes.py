"""The infinite-width limit of a classification: gradients, and a linear network whose limit is itself."""

import numpy as np
import torch

from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import read_reference
from retinabench.fidelity.submissions.untrained import kernels
from retinabench.fidelity.submissions.untrained.infinite_width_classes import ClassLikelihood, sample_classes
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.registry import TARGETS


def test_value_and_gradient_are_those_of_automatic_differentiation():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    given = torch.tensor([0, 2, 1, 1, 0, 2])
    at = torch.randn(2, 12, generator=generator, dtype=torch.float64, requires_grad=True)
    value, gradient = ClassLikelihood(given, root, 3)(at)
    latent = at.view(2, 3, 4) @ root.T
    plain = -torch.nn.functional.cross_entropy(latent, given.expand(2, -1), reduction="none").sum(dim=1)
    assert torch.allclose(value, plain)
    (slope,) = torch.autograd.grad(plain.sum(), at)
    assert torch.allclose(gradient, slope)


def test_the_limit_of_a_linear_network_is_its_posterior():
    """Against quadrature. 600 states of four chains, of which a quarter is independent at least: .02 of a std of .25, seed 0."""
    target = TARGETS["logistic"]
    data = load(target)
    truth = read_reference(target, data.sha256).probs
    found = sample_classes(target, data)
    assert found.shape == (1200, len(truth), 2)
    assert distances.total_variation(found.mean(axis=0), truth).mean() < 0.02


def test_the_tangent_kernel_is_the_covariance_of_the_linear_expansion():
    """The slopes of networks with many units at random weights: 4,000 units leave an error of 1 / √4000 = 1.6 %, times 4."""
    torch.manual_seed(0)
    variance, width = 0.2, 4000
    x = torch.randn(3, 2, dtype=torch.float64)
    hidden = variance**0.5 * torch.randn(width, 3, dtype=torch.float64)
    out = variance**0.5 * torch.randn(width, dtype=torch.float64)
    wide = torch.cat([x, torch.ones(3, 1, dtype=torch.float64)], dim=1)
    before = wide @ hidden.T
    by_out, by_hidden = before.relu(), out * (before > 0)
    slopes = by_out @ by_out.T + (by_hidden @ by_hidden.T) * (wide @ wide.T) + 1
    kernel = kernels.tangent_covariance(x, x, variance, width)
    assert np.allclose(kernel, variance * slopes, rtol=0.07)
