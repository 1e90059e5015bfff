"""Particles on flat parameters: tempered sequential Monte Carlo and Stein variational gradient descent.

Letters: K particles, P parameters.

Sequential Monte Carlo: the distributions are π_λ(w) ∝ exp(λ ℓ(w)) N(w; 0, s² I) with λ from 0 to 1. At each of them the particles
are weighted by exp((λ' - λ) ℓ), drawn again in proportion (systematic resampling), and moved by a transition of Hamiltonian Monte
Carlo that leaves π_λ' invariant. The next λ is that at which the effective sample size is half of the particles. The product of
the mean weights is an unbiased estimate of the evidence ∫ exp(ℓ(w)) N(w; 0, s² I) dw.

References:
    Del Moral, Doucet & Jasra 2006, "Sequential Monte Carlo Samplers"; Jasra, Stephens, Doucet & Tsagaris 2011, for the choice of λ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from retinabench.methods import hmc

SHARE = 0.5  # of the particles: the effective sample size after a change of λ


@dataclass(frozen=True)
class Tempered:
    """λ times a log-likelihood, as `hmc` asks for it."""

    log_likelihood: hmc.LogLikelihood
    power: float

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> values (K,), gradients (K, P)."""
        value, gradient = self.log_likelihood(weights)
        return self.power * value, self.power * gradient


def next_power(values: Tensor, power: float) -> float:
    """Return the next λ, by bisection. Shapes: `values` (K,)."""
    if effective(values * (1.0 - power)) >= SHARE * len(values):
        return 1.0
    low, high = power, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if effective(values * (middle - power)) >= SHARE * len(values):
            low = middle
        else:
            high = middle
    return high


def effective(log_weights: Tensor) -> float:
    """Return the effective sample size (Σ v)² / Σ v² of weights v = exp(log_weights), (K,)."""
    log = log_weights.double()
    return float((2 * log.logsumexp(0) - (2 * log).logsumexp(0)).exp())


def resampled(log_weights: Tensor, generator: torch.Generator) -> Tensor:
    """Return the indices of particles drawn in proportion to their weights (K,), by one uniform number."""
    count = len(log_weights)
    edges = log_weights.double().softmax(0).cumsum(0)
    points = (
        torch.arange(count, dtype=torch.float64) + torch.rand((), generator=generator, dtype=torch.float64)
    ) / count
    return torch.searchsorted(edges, points.to(edges.device)).clamp(max=count - 1)


def moved(
    log_likelihood: hmc.LogLikelihood,
    state: hmc.State,
    power: float,
    *,
    prior_variance: float,
    step: float,
    steps: int,
    generator: torch.Generator,
) -> tuple[hmc.State, hmc.Transition]:
    """Move particles once by Hamiltonian Monte Carlo that leaves π_λ invariant. Shapes: `log_likelihood` (K, P)."""
    tempered = hmc.State(state.weights, power * state.value, power * state.gradient)
    after, info = hmc.transition(
        Tempered(log_likelihood, power), tempered,
        prior_variance=prior_variance, step=step, steps=steps, generator=generator,
    )  # fmt: skip
    return hmc.State(after.weights, after.value / power, after.gradient / power), info


def stein_direction(weights: Tensor, slope: Tensor) -> Tensor:
    """Return the direction φ (K, P) of particles (K, P) with the gradient of log π at them.

    φ(w_i) = 1/K Σ_j [k(w_j, w_i) ∇ log π(w_j) + ∇_{w_j} k(w_j, w_i)],    k(a, b) = exp(-|a - b|² / h),

    lowers the divergence of the particles from π fastest. h = median² / log(K + 1), over the distances of all pairs.

    References:
        Liu & Wang 2016, "Stein Variational Gradient Descent". Their bandwidth has log K.
    """
    squares = torch.cdist(weights, weights).square()
    width = bandwidth(squares)
    kernel = (-squares / width).exp()
    repulsion = 2 / width * (kernel.sum(dim=1, keepdim=True) * weights - kernel @ weights)
    return (kernel @ slope + repulsion) / len(weights)


def bandwidth(squares: Tensor) -> float:
    """Return h of squared distances (K, K); 1 where there is one particle or most are in one place."""
    particles = len(squares)
    if particles == 1:
        return 1.0
    pairs = squares[tuple(torch.triu_indices(particles, particles, 1))]
    return float(pairs.median()) / math.log(particles + 1) or 1.0
