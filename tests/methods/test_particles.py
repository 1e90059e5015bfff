"""Particles on flat parameters."""

import math

import pytest
import torch

from retinabench.methods import hmc, particles

PRIOR, NOISE = 1.5, 0.6
INPUTS = torch.tensor([[1.0, 0.2], [0.3, -1.0], [0.8, 0.9], [-1.2, 0.4], [0.1, 1.1]], dtype=torch.float64)
TRUTHS = torch.tensor([0.9, -1.2, 0.3, -0.8, 0.7], dtype=torch.float64)


def log_likelihood(weights):
    rest = TRUTHS - weights @ INPUTS.T
    value = -(rest / NOISE).square().sum(dim=1) / 2 - len(TRUTHS) * math.log(NOISE * math.sqrt(2 * math.pi))
    return value, rest @ INPUTS / NOISE**2


def run(count, seed):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(count, 2, generator=generator, dtype=torch.float64) * math.sqrt(PRIOR)
    state, power, log_evidence = hmc.start(log_likelihood, drawn), 0.0, 0.0
    powers = []
    while power < 1:
        before, power = power, particles.next_power(state.value, power)
        log_weights = (power - before) * state.value
        # The factor of the evidence of one change of the power: the mean weight.
        log_evidence += float(log_weights.logsumexp(0)) - math.log(len(log_weights))
        rows = particles.resampled(log_weights, generator)
        state = hmc.State(state.weights[rows], state.value[rows], state.gradient[rows])
        for _ in range(3):
            state, _ = particles.moved(
                log_likelihood, state, power, prior_variance=PRIOR, step=0.25, steps=5, generator=generator
            )
        powers.append(power)
    return log_evidence, state, powers


def test_evidence_and_mean_are_those_of_the_conjugate_regression():
    """The mean of 40 unbiased estimates of the evidence, and of the particles' means: four standard errors of the 40."""
    covariance = PRIOR * INPUTS @ INPUTS.T + NOISE**2 * torch.eye(5, dtype=torch.float64)
    truth = torch.distributions.MultivariateNormal(torch.zeros(5, dtype=torch.float64), covariance)
    evidence = float(truth.log_prob(TRUTHS).exp())
    mean = torch.linalg.solve(
        INPUTS.T @ INPUTS / NOISE**2 + torch.eye(2, dtype=torch.float64) / PRIOR, INPUTS.T @ TRUTHS / NOISE**2
    )
    runs = [run(64, seed) for seed in range(40)]
    estimates = torch.tensor([math.exp(log) for log, _, _ in runs])
    assert float(estimates.mean()) == pytest.approx(evidence, abs=4 * float(estimates.std()) / math.sqrt(40))
    means = torch.stack([state.weights.mean(dim=0) for _, state, _ in runs])
    assert ((means.mean(dim=0) - mean).abs() < 4 * means.std(dim=0) / math.sqrt(40)).all()
    assert all(powers[-1] == 1 and powers == sorted(powers) for _, _, powers in runs)


def test_the_next_power_halves_the_effective_sample_size_or_is_one():
    values = torch.linspace(-300, 0, 50, dtype=torch.float64)
    power = particles.next_power(values, 0.0)
    assert particles.effective(values * power) == pytest.approx(25, abs=1e-6)
    assert particles.next_power(values / 1000, 0.2) == 1


def test_particles_are_drawn_in_proportion_to_their_weights():
    """Systematic resampling gives every particle its expected number, rounded up or down."""
    shares = torch.tensor([0.55, 0.05, 0.0, 0.4], dtype=torch.float64)
    rows = particles.resampled(shares.log() + 7, torch.Generator().manual_seed(0))
    assert rows.bincount(minlength=4).tolist() in ([2, 0, 0, 2], [2, 1, 0, 1], [3, 0, 0, 1], [2, 0, 0, 2])
    many = torch.stack(
        [particles.resampled(shares.log(), torch.Generator().manual_seed(s)).bincount(minlength=4) for s in range(400)]
    )
    assert many.double().mean(dim=0) == pytest.approx(4 * shares, abs=0.1)  # five standard errors of at most .5 / 20


def test_the_direction_is_the_sum_over_all_pairs():
    generator = torch.Generator().manual_seed(0)
    weights, slope = torch.randn(2, 7, 3, generator=generator, dtype=torch.float64)
    distances = [float((a - b).square().sum()) for i, a in enumerate(weights) for b in weights[:i]]
    h = sorted(distances)[(len(distances) - 1) // 2] / math.log(8)
    for i, found in enumerate(particles.stein_direction(weights, slope)):
        truth = torch.zeros(3, dtype=torch.float64)
        for j in range(7):
            moving = weights[j].clone().requires_grad_(True)
            kernel = (-(moving - weights[i]).square().sum() / h).exp()
            (gradient,) = torch.autograd.grad(kernel, moving)
            truth += (kernel.detach() * slope[j] + gradient) / 7
        assert torch.allclose(found, truth)


def test_one_particle_climbs_to_the_maximum():
    slope = torch.tensor([[2.0, -3.0]])
    assert torch.equal(particles.stein_direction(torch.zeros(1, 2), slope), slope)


def test_many_particles_have_the_moments_of_a_normal_distribution():
    """50 particles for N(2, 0.5²), no noise: the mean is exact by symmetry of the kernel, the std within 5 %."""
    weights = torch.linspace(-1, 1, 50, dtype=torch.float64)[:, None]
    for _ in range(3000):
        weights = weights + 0.05 * particles.stein_direction(weights, -(weights - 2) / 0.25)
    assert float(weights.mean()) == pytest.approx(2, abs=1e-3)
    assert float(weights.std()) == pytest.approx(0.5, rel=0.05)
