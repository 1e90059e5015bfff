"""Microcanonical Langevin: its turns against their differential equation, its draws against a Gaussian in closed form."""

import math

import pytest
import torch
from scipy.integrate import solve_ivp

from retinabench.methods.mcmc import hmc, mclmc

PRIOR = 2.0
SCALES = torch.tensor([0.2, 0.5, 1.0, 2.0, 0.4, 1.5], dtype=torch.float64)
CENTRE = torch.linspace(-1, 1, 6, dtype=torch.float64)


def gaussian(weights):
    offset = weights - CENTRE
    return -(offset / SCALES).square().sum(dim=1) / 2, -offset / SCALES.square()


def linear(slope):
    return lambda weights: (weights @ slope, slope.expand_as(weights).clone())


SLOPE = torch.tensor([1.0, -0.4, 0.3, 0.8], dtype=torch.float64)


def straight_step(slope, size):
    """One step under a constant slope, without noise, of three chains."""
    generator = torch.Generator().manual_seed(0)
    state = hmc.start(linear(slope), torch.zeros(3, 4, dtype=torch.float64))
    point = mclmc.begin(state, generator)
    after, error = mclmc.step(
        linear(slope), point, prior_variance=1e300, size=size, length=1e300, generator=generator
    )
    return point.velocity.numpy(), after.velocity.numpy(), error


@pytest.mark.parametrize("steepness", [0.5, 40.0])
def test_under_a_constant_slope_the_velocity_solves_its_differential_equation(steepness):
    slope = steepness * SLOPE

    def equation(_, u):
        return (slope.numpy() - u * (u @ slope.numpy())) / 3

    for start, end in zip(*straight_step(slope, 0.7)[:2], strict=True):
        truth = solve_ivp(equation, (0, 0.7), start, rtol=1e-10, atol=1e-12).y[:, -1]
        assert end == pytest.approx(truth, abs=1e-8)


def test_the_energy_error_falls_with_the_third_power_of_the_step():
    errors = [straight_step(SLOPE, size)[2] for size in (0.02, 0.01)]
    assert errors[0] / errors[1] == pytest.approx(torch.full((3,), 8.0, dtype=torch.float64), rel=0.05)


def test_means_and_variances_are_the_closed_form_s():
    """16 chains of 3,000 steps: four standard errors between the chains; variances with 5 % of bias, which the size of the step allows."""
    generator = torch.Generator().manual_seed(1)
    variance = 1 / (1 / SCALES.square() + 1 / PRIOR)
    mean = variance * CENTRE / SCALES.square()
    state = hmc.start(gaussian, torch.randn(16, 6, generator=generator, dtype=torch.float64))
    point, size = mclmc.begin(state, generator), mclmc.VarianceStepSize(0.3)
    length = float(variance.sum().sqrt())
    draws = []
    for number in range(3500):
        point, error = mclmc.step(
            gaussian, point, prior_variance=PRIOR, size=size.size, length=length, generator=generator
        )
        if number < 500:
            assert size.update(float(error[0]), 6)
        else:
            draws.append(point.state.weights)
    kept = torch.stack(draws)
    for values, truth, bias in ((kept, mean, 0.0), ((kept - mean).square(), variance, 0.05)):
        chains = values.mean(dim=0)
        limit = 4 * chains.std(dim=0) / math.sqrt(16) + bias * truth.abs()
        assert ((chains.mean(dim=0) - truth).abs() < limit).all()


def test_the_step_is_the_one_whose_energy_error_is_wanted():
    """Errors that are exactly c ε³: the wanted variance per parameter is reached at once, whatever the first step."""
    for first in (0.01, 3.0):
        size = mclmc.VarianceStepSize(first)
        for _ in range(100):
            size.update(2.0 * size.size**3, 10)
        assert size.size == pytest.approx((10 * mclmc.ENERGY_VARIANCE / 4) ** (1 / 6), rel=0.01)


def test_a_step_that_leaves_the_finite_numbers_is_halved():
    size = mclmc.VarianceStepSize(0.8)
    assert not size.update(math.nan, 10)
    assert size.size == 0.4
