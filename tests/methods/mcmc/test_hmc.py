"""HMC against a posterior in closed form: Bayesian linear regression with known noise."""

import numpy as np
import pytest
import torch

from retinabench.fidelity.reference.diagnostics import ess_mean, mcse, split_rhat
from retinabench.methods.mcmc import hmc

N, P, NOISE, PRIOR = 30, 4, 0.25, 1.0


def generator(seed):
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def problem():
    """The log-likelihood, and the posterior's exact mean and covariance."""
    draw = generator(1)
    x = torch.randn(N, P, generator=draw, dtype=torch.float64)
    truth = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
    y = x @ truth + NOISE**0.5 * torch.randn(N, generator=draw, dtype=torch.float64)

    def log_likelihood(weights):
        residual = y - weights @ x.T
        return -(residual**2).sum(dim=1) / (2 * NOISE), residual @ x / NOISE

    covariance = torch.linalg.inv(x.T @ x / NOISE + torch.eye(P, dtype=torch.float64) / PRIOR)
    return log_likelihood, (covariance @ x.T @ y / NOISE).numpy(), covariance.numpy()


def run(log_likelihood, step, draws, chains=8, steps=None, seed=3):
    draw = generator(seed)
    state = hmc.start(log_likelihood, torch.zeros(chains, P, dtype=torch.float64))
    found, accepted = [], []
    for number in range(draws + 50):
        state, info = hmc.transition(
            log_likelihood, state, prior_variance=PRIOR, step=step,
            steps=steps or hmc.steps_for(step, PRIOR), generator=draw,
        )  # fmt: skip
        if number >= 50:
            found.append(state.weights)
            accepted.append(info.accepted)
    return torch.stack(found, dim=1).numpy(), float(torch.stack(accepted).double().mean())


@pytest.mark.parametrize(("step", "rate"), [(0.06, (0.8, 1.0)), (0.115, (0.1, 0.7))])
def test_mean_and_covariance_are_the_closed_form_s(problem, step, rate):
    log_likelihood, mean, covariance = problem
    # The larger step is often refused: only a chain that counts its repeats still has the right moments.
    draws, accepted = run(log_likelihood, step, 600)
    assert rate[0] < accepted < rate[1]
    assert (split_rhat(draws) < 1.05).all()
    assert (np.abs(draws.mean(axis=(0, 1)) - mean) < 4 * mcse(draws)).all()
    # Second moments too are means of draws: their own Monte Carlo error is the tolerance.
    centred = draws - mean
    products = (centred[:, :, :, None] * centred[:, :, None, :]).reshape(*draws.shape[:2], -1)
    assert (np.abs(products.mean(axis=(0, 1)) - covariance.ravel()) < 4 * mcse(products)).all()


def test_without_data_a_trajectory_is_an_independent_draw():
    def nothing(weights):
        return torch.zeros(len(weights), dtype=torch.float64), torch.zeros_like(weights)

    draws, accepted = run(nothing, 0.05, 400)
    assert accepted > 0.99
    # A quarter period turns position into momentum: as many effective draws as draws, up to the estimate's error.
    assert (ess_mean(draws) > 0.75 * 8 * 400).all()
    # 3,200 independent draws of variance 1: its standard error is √(2 / 3200) = 0.025.
    assert draws.var(axis=(0, 1)) == pytest.approx(np.ones(P), abs=0.1)


def test_the_leapfrog_is_reversible_and_of_second_order(problem):
    log_likelihood, _, _ = problem
    state = hmc.start(log_likelihood, torch.randn(2, P, generator=generator(5), dtype=torch.float64))
    momentum = torch.randn(2, P, generator=generator(6), dtype=torch.float64)
    before, first = state.weights.clone(), momentum.clone()
    there, end = hmc.leapfrog(log_likelihood, state, momentum, PRIOR, 0.02, 25)
    assert torch.equal(state.weights, before)  # steps are made in place, but not in the place of the start
    assert torch.equal(momentum, first)
    back, _ = hmc.leapfrog(log_likelihood, there, -end, PRIOR, 0.02, 25)
    assert torch.allclose(back.weights, state.weights, atol=1e-12)

    def energy(where, p):
        return -where.value + (where.weights**2).sum(1) / (2 * PRIOR) + (p**2).sum(1) / 2

    errors = []
    for halving in range(3):
        step, steps = 0.04 / 2**halving, 10 * 2**halving
        there, end = hmc.leapfrog(log_likelihood, state, momentum, PRIOR, step, steps)
        errors.append(float((energy(there, end) - energy(state, momentum)).abs().max()))
    # Half the step, a quarter of the error.
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.3)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.15)


def test_the_energy_difference_survives_float32():
    # Energies near 20,000, where float32 has steps of 0.002: their difference must not.
    def nothing(weights):
        return torch.zeros(len(weights)), torch.zeros_like(weights)

    weights = torch.randn(3, 20_000, generator=generator(7))
    _, info = hmc.transition(
        nothing, hmc.start(nothing, weights), prior_variance=1.0, step=0.01, steps=20, generator=generator(8)
    )
    momentum = torch.randn(weights.shape, generator=generator(8)).double()
    exact = hmc.start(nothing, weights.double())
    end, last = hmc.leapfrog(nothing, exact, momentum, 1.0, 0.01, 20)

    def energy(where, p):
        return (where.weights**2).sum(1) / 2 + (p**2).sum(1) / 2

    truth = energy(end, last) - energy(exact, momentum)
    assert torch.allclose(info.energy_error, truth, atol=2e-4)


def test_a_trajectory_that_explodes_is_refused(problem):
    log_likelihood, _, _ = problem
    state = hmc.start(log_likelihood, torch.zeros(3, P, dtype=torch.float64))
    after, info = hmc.transition(
        log_likelihood, state, prior_variance=PRIOR, step=50.0, steps=200, generator=generator(9)
    )
    assert not info.accepted.any()
    assert torch.equal(after.weights, state.weights)


def test_the_step_size_reaches_its_target(problem):
    log_likelihood, _, _ = problem
    draw = generator(11)
    state = hmc.start(log_likelihood, torch.zeros(8, P, dtype=torch.float64))
    size = hmc.StepSize(hmc.first_step(log_likelihood, state, PRIOR, draw), target=0.8)
    for _ in range(150):
        state, info = hmc.transition(
            log_likelihood, state, prior_variance=PRIOR, step=size.step,
            steps=min(100, hmc.steps_for(size.step, PRIOR)), generator=draw,
        )  # fmt: skip
        size.update(float(info.acceptance.mean()))
    _, accepted = run(log_likelihood, size.adapted, 200)
    assert accepted == pytest.approx(0.8, abs=0.1)
