"""Chains on flat parameters, against known posteriors."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.stats import chisquare

from retinabench.fidelity.reference.convergence import mcse, split_rhat
from retinabench.methods import hmc
from retinabench.methods.hmc import Nuts
from support.helpers import generator

N, P, NOISE, PRIOR = 30, 4, 0.25, 1.0


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


def run(log_likelihood, step, draws, *, chains=8, parameters=P, prior=PRIOR, steps=None, burn_in=50, seed=3):
    draw = generator(seed)
    state = hmc.start(log_likelihood, torch.zeros(chains, parameters, dtype=torch.float64))
    found, accepted = [], []
    for number in range(draws + burn_in):
        state, info = hmc.transition(
            log_likelihood, state, prior_variance=prior, step=step,
            steps=steps or hmc.steps_for(step, prior), generator=draw,
        )  # fmt: skip
        if number >= burn_in:
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
    options = {"prior_variance": 1.0, "step": 0.01, "steps": 20, "generator": generator(8)}
    _, info = hmc.transition(nothing, hmc.start(nothing, weights), **options)
    momentum = torch.randn(weights.shape, generator=generator(8)).double()
    exact = hmc.start(nothing, weights.double())
    end, last = hmc.leapfrog(nothing, exact, momentum, 1.0, 0.01, 20)

    def energy(where, p):
        return (where.weights**2).sum(1) / 2 + (p**2).sum(1) / 2

    truth = energy(end, last) - energy(exact, momentum)
    assert torch.allclose(info.energy_error, truth, atol=2e-4)


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


def logistic(inputs, labels):
    """The log-likelihood of (K, P) weights, for shared (N, P) inputs and labels (N,) or (K, N)."""
    x, y = torch.from_numpy(inputs), torch.from_numpy(labels)

    def log_likelihood(weights):
        logits = weights @ x.T
        value = (y * logits - torch.nn.functional.softplus(logits)).sum(dim=1)
        return value, (y - logits.sigmoid()) @ x

    return log_likelihood


@pytest.mark.parametrize("refused", [False, True])
def test_ranks_of_the_truth_among_posterior_draws_are_uniform(refused):
    # Simulation-based calibration (Talts et al. 2018): truth from the prior, data from the truth, one chain each. With
    # independent draws the rank is uniform. The larger step is refused often: repeats must be counted for this to hold.
    chains, draws, thin, bins = 600, 19, 8, 10
    random = np.random.default_rng(23)
    prior, truth = 1.5, random.normal(0, np.sqrt(1.5), (chains, 2))
    inputs = random.normal(size=(25, 2))
    labels = (random.random((chains, 25)) < 1 / (1 + np.exp(-truth @ inputs.T))).astype(float)
    step, steps = (0.95, 3) if refused else (0.3, 7)
    found, _ = run(
        logistic(inputs, labels), step, draws * thin,
        chains=chains, parameters=2, prior=prior, steps=steps, burn_in=40, seed=5,
    )  # fmt: skip
    found = found[:, thin - 1 :: thin]
    for value in (found[:, :, 0] - truth[:, None, 0], found[:, :, 1] - truth[:, None, 1],
                  found.sum(axis=2) - truth.sum(axis=1)[:, None]):  # fmt: skip
        ranks = (value < 0).sum(axis=1)  # 0 to 19
        counts = np.bincount(ranks * bins // (draws + 1), minlength=bins)
        # Chi-square with 9 degrees of freedom on 600 ranks; each of the six tests fails by chance once in 1,000 seeds.
        assert chisquare(counts).pvalue > 0.001, counts


PRECISION = torch.tensor([[4.0, 1.2], [1.2, 1.0]], dtype=torch.float64)
CENTRE = torch.tensor([1.0, -2.0], dtype=torch.float64)
NUTS_PRIOR = 2.0


def log_likelihood(weights):
    offset = weights - CENTRE
    slope = offset @ PRECISION
    return -(slope * offset).sum(dim=1) / 2, -slope


def chain(step, draws, depth=10):
    generator = torch.Generator().manual_seed(5)
    sampler = Nuts(log_likelihood, NUTS_PRIOR, step, generator, depth)
    state = hmc.start(log_likelihood, torch.zeros(1, 2, dtype=torch.float64))
    found, rates, steps = [], [], []
    for _ in range(draws):
        state, rate, taken = sampler.transition(state)
        found.append(state.weights[0])
        rates.append(rate)
        steps.append(taken)
    return torch.stack(found).numpy()[20:], rates, steps


@pytest.mark.parametrize("step", [0.25, 0.7])
def test_mean_and_covariance_are_the_closed_form_s_nuts(step):
    """Four Monte Carlo standard errors of each first and second moment, 400 draws; at the larger step many points weigh little."""
    precision = (PRECISION + torch.eye(2, dtype=torch.float64) / NUTS_PRIOR).numpy()
    covariance = np.linalg.inv(precision)
    mean = covariance @ (PRECISION @ CENTRE).numpy()
    draws, rates, _ = chain(step, 420)
    assert 0.5 < np.mean(rates) <= 1
    centred = draws - mean
    products = np.stack([centred[:, i] * centred[:, j] for i, j in ((0, 0), (0, 1), (1, 1))], axis=1)
    for values, truth in ((draws, mean), (products, covariance[[0, 0, 1], [0, 1, 1]])):
        split = values.reshape(4, -1, values.shape[1])
        assert (np.abs(values.mean(axis=0) - truth) < 4 * mcse(split)).all()


def test_a_divergence_ends_the_trajectory_and_keeps_the_state():
    draws, rates, steps = chain(50.0, 30)
    assert np.array_equal(draws, np.zeros_like(draws))
    assert max(steps) == 1
    assert max(rates) < 1e-9


def linear(slope):
    return lambda weights: (weights @ slope, slope.expand_as(weights).clone())


SLOPE = torch.tensor([1.0, -0.4, 0.3, 0.8], dtype=torch.float64)


def straight_step(slope, size):
    """One step under a constant slope, without noise, of three chains."""
    generator = torch.Generator().manual_seed(0)
    state = hmc.start(linear(slope), torch.zeros(3, 4, dtype=torch.float64))
    point = hmc.microcanonical_start(state, generator)
    options = {"size": size, "length": 1e300, "generator": generator}
    after, error = hmc.microcanonical_step(linear(slope), point, **options)
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


def test_accepted_trajectories_keep_a_gaussian_that_single_steps_of_that_size_do_not():
    """20,000 chains start in N(0, I) of 6 weights and take steps of 2; the standard error of the mean square is .004."""
    generator = torch.Generator().manual_seed(0)

    def normal(weights):
        return -0.5 * weights.square().sum(dim=1), -weights

    first = hmc.start(normal, torch.randn(20_000, 6, generator=generator, dtype=torch.float64))
    adjusted, point = first, hmc.microcanonical_start(first, generator)
    for _ in range(5):
        adjusted, info = hmc.microcanonical_transition(normal, adjusted, size=2.0, steps=2, generator=generator)
        assert 0.5 < float(info.accepted.double().mean()) < 0.95
    for _ in range(10):
        options = {"size": 2.0, "length": 2.0, "generator": generator}
        point, _ = hmc.microcanonical_step(normal, point, **options)
    assert float(adjusted.weights.square().mean()) == pytest.approx(1, abs=0.017)
    assert abs(float(point.state.weights.square().mean()) - 1) > 0.05
