"""Microcanonical Langevin Monte Carlo on flat parameters: a chain of constant speed, no rejections, one gradient per step.

The velocity u is a unit vector. With S = -log π, P parameters and time step ε the chain follows

    dw = u dt,    du = -(1 - u uᵀ) ∇S / (P - 1) dt + η (1 - u uᵀ) dW,

whose stationary distribution of w is π whatever the amount of noise η. Leapfrog steps are half a turn of u, w + ε u, half a turn of u;
afterwards u is partly refreshed, so that it forgets its direction over a length L. Without rejections the states are biased by the
error of the step, which is kept small: the squared energy error per parameter and step is held at 5e-4.

Letters: P parameters; K chains, which share the step.

References:
    Robnik, De Luca, Silverstein & Seljak 2023, "Microcanonical Hamiltonian Monte Carlo"; Robnik & Seljak 2023, "Fluctuation without
    dissipation: Microcanonical Langevin Monte Carlo", for the refreshment, and the adaptation of the step in their appendix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from retinabench.methods.mcmc import hmc

ENERGY_VARIANCE = 5e-4  # of a step, per parameter
SCALE = 1.5  # energy variances that differ from it by more than this factor to the sixth power hardly count
MEMORY = 150  # steps that the adaptation remembers


@dataclass(frozen=True)
class ChainPoint:
    """Where the chains are: states, and unit velocities (K, P)."""

    state: hmc.State
    velocity: Tensor


def begin(state: hmc.State, generator: torch.Generator) -> ChainPoint:
    """Return the chains at a state, with velocities in random directions."""
    drawn = torch.randn(state.weights.shape, generator=generator, dtype=state.weights.dtype)
    return ChainPoint(state, drawn / drawn.norm(dim=1, keepdim=True))


def step(
    log_likelihood: hmc.LogLikelihood,
    point: ChainPoint,
    *,
    prior_variance: float,
    size: float,
    length: float,
    generator: torch.Generator,
) -> tuple[ChainPoint, Tensor]:
    """Move all chains once.

    Args:
        log_likelihood: Weights (K, P) -> log-likelihood (K,) and its gradient (K, P).
        point: Where the chains are.
        prior_variance: s² of the prior N(0, s² I).
        size: Step size ε, a length in the space of the weights.
        length: L, over which the velocity forgets its direction.
        generator: Source of the noise, on the CPU.

    Returns:
        The chains after the step, and the energy error (K,), NaN or infinite where a chain left the finite numbers.
    """
    before = point.state
    velocity, first = _turn(point.velocity, _slope(before, prior_variance), size / 2)
    weights = before.weights + size * velocity
    after = hmc.State(weights, *log_likelihood(weights))
    velocity, second = _turn(velocity, _slope(after, prior_variance), size / 2)
    gain = after.value.double() - before.value.double()
    prior = (before.weights.double().square() - weights.double().square()).sum(dim=1) / (2 * prior_variance)
    error = first + second - gain - prior
    return ChainPoint(after, _refreshed(velocity, size / length, generator)), error


def _slope(state: hmc.State, prior_variance: float) -> Tensor:
    """Return the gradient of log π, (K, P)."""
    return state.gradient - state.weights / prior_variance


def _turn(velocity: Tensor, slope: Tensor, time: float) -> tuple[Tensor, Tensor]:
    """Turn unit velocities towards the slope for a time; return them and the change of kinetic energy (K,), exact for a constant slope.

    With e the direction of the slope, δ = time |slope| / (P - 1) and c = e·u the velocity becomes
    (u + e (sinh δ + c (cosh δ - 1))) / (cosh δ + c sinh δ); written with exp(-δ), so that steep slopes do not overflow.
    """
    parameters = velocity.shape[1]
    norm = slope.norm(dim=1, keepdim=True)
    direction = slope / norm.clamp(min=torch.finfo(slope.dtype).tiny)
    delta = time * norm / (parameters - 1)
    along = (direction * velocity).sum(dim=1, keepdim=True)
    decay = (-delta).exp()
    turned = direction * (1 - decay) * (1 + decay + along * (1 - decay)) + 2 * decay * velocity
    turned = turned / turned.norm(dim=1, keepdim=True)
    grown = delta - math.log(2) + (1 + along + (1 - along) * decay.square()).log()
    return turned, (parameters - 1) * grown.squeeze(1).double()


def _refreshed(velocity: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Mix unit velocities with noise; `share` is the step as a part of the length over which they lose their direction."""
    noise = torch.randn(velocity.shape, generator=generator, dtype=velocity.dtype).to(velocity.device)
    mixed = velocity + math.sqrt(math.expm1(2 * share) / velocity.shape[1]) * noise
    refreshed: Tensor = mixed / mixed.norm(dim=1, keepdim=True)
    return refreshed


@dataclass
class VarianceStepSize:
    """The step at which the squared energy error is `ENERGY_VARIANCE` per parameter; it grows with the sixth power of the step.

    Args:
        size: The step now.
        weighted: Weighted sum of squared error / step⁶, over `ENERGY_VARIANCE` and parameters.
        weights: Sum of the weights.
    """

    size: float
    weighted: float = field(default=0.0)
    weights: float = field(default=0.0)

    def update(self, error: float, parameters: int) -> bool:
        """Adapt the step to the energy error of one step; return whether the step is to be kept, which it is not where the error is not finite."""
        if not math.isfinite(error):
            self.size *= 0.5
            self.weighted = self.weights = 0.0
            return False
        excess = error**2 / (parameters * ENERGY_VARIANCE) + 1e-8
        weight = math.exp(-0.5 * (math.log(excess) / (6 * SCALE)) ** 2)
        decay = (MEMORY - 1) / (MEMORY + 1)
        self.weighted = decay * self.weighted + weight * excess / self.size**6
        self.weights = decay * self.weights + weight
        self.size = (self.weights / self.weighted) ** (1 / 6)
        return True
