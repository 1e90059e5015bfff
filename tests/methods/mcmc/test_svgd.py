"""Stein variational gradient descent against the sums written out, and against a normal distribution."""

import math

import pytest
import torch

from retinabench.methods.mcmc import svgd


def test_the_direction_is_the_sum_over_all_pairs():
    generator = torch.Generator().manual_seed(0)
    weights, slope = torch.randn(2, 7, 3, generator=generator, dtype=torch.float64)
    distances = [float((a - b).square().sum()) for i, a in enumerate(weights) for b in weights[:i]]
    h = sorted(distances)[(len(distances) - 1) // 2] / math.log(8)
    for i, found in enumerate(svgd.direction(weights, slope)):
        truth = torch.zeros(3, dtype=torch.float64)
        for j in range(7):
            moving = weights[j].clone().requires_grad_(True)
            kernel = (-(moving - weights[i]).square().sum() / h).exp()
            (gradient,) = torch.autograd.grad(kernel, moving)
            truth += (kernel.detach() * slope[j] + gradient) / 7
        assert torch.allclose(found, truth)


def test_one_particle_climbs_to_the_maximum():
    slope = torch.tensor([[2.0, -3.0]])
    assert torch.equal(svgd.direction(torch.zeros(1, 2), slope), slope)


def test_particles_in_one_place_follow_the_slope_together():
    slope = torch.ones(4, 2)
    assert torch.allclose(svgd.direction(torch.zeros(4, 2), slope), slope)


def test_many_particles_have_the_moments_of_a_normal_distribution():
    """50 particles for N(2, 0.5²), no noise: the mean is exact by symmetry of the kernel, the std within 5 %."""
    weights = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    for _ in range(3000):
        weights = weights + 0.05 * svgd.direction(weights, -(weights - 2) / 0.25)
    assert float(weights.mean()) == pytest.approx(2, abs=1e-3)
    assert float(weights.std()) == pytest.approx(0.5, rel=0.05)
