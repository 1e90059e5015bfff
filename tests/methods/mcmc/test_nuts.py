"""NUTS against a Gaussian in closed form, and its cost."""

import numpy as np
import pytest
import torch

from retinabench.fidelity.reference.diagnostics import mcse
from retinabench.methods.mcmc import hmc
from retinabench.methods.mcmc.nuts import Nuts

PRECISION = torch.tensor([[4.0, 1.2], [1.2, 1.0]], dtype=torch.float64)
CENTRE = torch.tensor([1.0, -2.0], dtype=torch.float64)
PRIOR = 2.0


def log_likelihood(weights):
    offset = weights - CENTRE
    slope = offset @ PRECISION
    return -(slope * offset).sum(dim=1) / 2, -slope


def chain(step, draws, depth=10):
    generator = torch.Generator().manual_seed(5)
    sampler = Nuts(log_likelihood, PRIOR, step, generator, depth)
    state = hmc.start(log_likelihood, torch.zeros(1, 2, dtype=torch.float64))
    found, rates, steps = [], [], []
    for _ in range(draws):
        state, rate, taken = sampler.transition(state)
        found.append(state.weights[0])
        rates.append(rate)
        steps.append(taken)
    return torch.stack(found).numpy()[20:], rates, steps


@pytest.mark.parametrize("step", [0.25, 0.7])
def test_mean_and_covariance_are_the_closed_form_s(step):
    """Four Monte Carlo standard errors of each first and second moment, 800 draws; at the larger step many points weigh little."""
    precision = (PRECISION + torch.eye(2, dtype=torch.float64) / PRIOR).numpy()
    covariance = np.linalg.inv(precision)
    mean = covariance @ (PRECISION @ CENTRE).numpy()
    draws, rates, _ = chain(step, 820)
    assert 0.5 < np.mean(rates) <= 1
    centred = draws - mean
    for values, truth in (
        (draws, mean),
        (
            np.stack([centred[:, i] * centred[:, j] for i, j in ((0, 0), (0, 1), (1, 1))], axis=1),
            covariance[[0, 0, 1], [0, 1, 1]],
        ),
    ):
        split = values.reshape(4, -1, values.shape[1])
        assert (np.abs(values.mean(axis=0) - truth) < 4 * mcse(split)).all()


def test_a_trajectory_takes_no_more_steps_than_its_depth_allows():
    _, _, steps = chain(0.001, 5, depth=3)
    assert steps == [7] * 5  # 1 + 2 + 4: so short a trajectory does not turn


def test_a_divergence_ends_the_trajectory_and_keeps_the_state():
    draws, rates, steps = chain(50.0, 30)
    assert np.array_equal(draws, np.zeros_like(draws))
    assert max(steps) == 1
    assert max(rates) < 1e-9
