"""Hamiltonian Monte Carlo on flat parameters: many chains at once, full-batch gradients, every rejection counted.

Target: π(w) ∝ exp(ℓ(w)) N(w; 0, s² I), ℓ the summed log-likelihood, temperature 1. H(w, p) = -ℓ(w) + |w|² / 2s² + |p|² / 2.
A transition refreshes p ~ N(0, I), takes L leapfrog steps of size ε and accepts with probability min(1, exp(H - H')).
The trajectory L ε = π s / 2 is a quarter period of the prior's oscillator: along directions that the data do not
touch, one transition is one independent draw (Neal 2011; Izmailov et al. 2021).

Letters: K chains, P parameters. All chains share one step size, which burn-in adapts to a target acceptance (dual
averaging, Hoffman & Gelman 2014) and which is then frozen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

LogLikelihood = Callable[[Tensor], tuple[Tensor, Tensor]]
"""(K, P) weights -> the log-likelihood (K,) and its gradient (K, P), both new: the weights change in place afterwards.

One that has a method `gradient`, (K, P) -> (K, P), is asked for nothing else within a trajectory.
"""


@dataclass(frozen=True)
class State:
    """The chains: weights (K, P), their log-likelihood (K,) and its gradient (K, P)."""

    weights: Tensor
    value: Tensor
    gradient: Tensor


@dataclass(frozen=True)
class Transition:
    """One transition, each (K,): the acceptance probability, whether it was accepted, H' - H."""

    acceptance: Tensor
    accepted: Tensor
    energy_error: Tensor


def start(log_likelihood: LogLikelihood, weights: Tensor) -> State:
    """Return the chains at the given weights (K, P)."""
    return State(weights, *log_likelihood(weights))


def steps_for(step: float, prior_variance: float) -> int:
    """Return the leapfrog steps L = ⌈π s / 2ε⌉ of a quarter period."""
    return max(1, math.ceil(math.pi * math.sqrt(prior_variance) / (2 * step)))


def transition(
    log_likelihood: LogLikelihood,
    state: State,
    *,
    prior_variance: float,
    step: float,
    steps: int,
    generator: torch.Generator,
) -> tuple[State, Transition]:
    """Move all chains once.

    The energies of float32 weights are too large to subtract: the differences of likelihood, prior and kinetic energy
    are taken apart, the last two element by element, and summed in float64. A trajectory that leaves the finite
    numbers is rejected like any other.

    Args:
        log_likelihood: Weights (K, P) -> log-likelihood (K,) and its gradient (K, P).
        state: The K chains.
        prior_variance: s² of the prior N(0, s² I).
        step: Step size ε.
        steps: Leapfrog steps.
        generator: Source of momenta and acceptances, on the CPU.

    Returns:
        The chains after the transition, and its statistics.
    """
    weights = state.weights
    # Drawn on the processor, so that the chain does not depend on the device's own generator.
    momentum = torch.randn(weights.shape, generator=generator, dtype=weights.dtype).to(weights.device)
    uniform = torch.rand(len(weights), generator=generator, dtype=torch.float64).to(weights.device)
    proposal, end = leapfrog(log_likelihood, state, momentum, prior_variance, step, steps)
    likelihood = proposal.value.double() - state.value.double()
    prior = _squares(weights, proposal.weights) / (2 * prior_variance)
    kinetic = _squares(momentum, end) / 2
    gain = likelihood + prior + kinetic  # H - H'
    acceptance = gain.clamp(max=0).exp().nan_to_num(0.0)
    accepted = uniform < acceptance
    kept = State(
        *(
            torch.where(accepted.reshape(-1, *[1] * (new.ndim - 1)), new, old)
            for new, old in zip(
                (proposal.weights, proposal.value, proposal.gradient),
                (state.weights, state.value, state.gradient),
                strict=True,
            )
        )
    )
    return kept, Transition(acceptance, accepted, -gain)


def leapfrog(
    log_likelihood: LogLikelihood,
    state: State,
    momentum: Tensor,
    prior_variance: float,
    step: float,
    steps: int,
) -> tuple[State, Tensor]:
    """Follow Hamilton's equations for `steps` steps; return the state at the end and its momentum (K, P).

    Args:
        log_likelihood: Weights (K, P) -> log-likelihood (K,) and its gradient (K, P).
            An attribute `gradient`, where there is one, gives the latter alone.
        state: The K chains.
        momentum: (K, P).
        prior_variance: s² of the prior N(0, s² I).
        step: Step size ε.
        steps: Number of steps.
    """
    weights = state.weights.clone()
    momentum = momentum + (step / 2) * (state.gradient - weights / prior_variance)
    inner = getattr(log_likelihood, "gradient", lambda weights: log_likelihood(weights)[1])
    for _ in range(steps - 1):
        weights.add_(momentum, alpha=step)
        # Two half steps of the momentum in one.
        momentum.add_(inner(weights), alpha=step).sub_(weights, alpha=step / prior_variance)
    weights.add_(momentum, alpha=step)
    value, gradient = log_likelihood(weights)
    momentum.add_(gradient, alpha=step / 2).sub_(weights, alpha=step / 2 / prior_variance)
    return State(weights, value, gradient), momentum


def _squares(before: Tensor, after: Tensor) -> Tensor:
    """Return |before|² - |after|² (K,), exact where the two are close."""
    return ((before - after).double() * (before + after).double()).sum(dim=1)


@dataclass
class StepSize:
    """Dual averaging of log ε towards a mean acceptance (Hoffman & Gelman 2014, section 3.2).

    Two of their constants differ, because here a transition has hundreds of steps and burn-in tens of transitions: the
    average is drawn towards `first` instead of ten times as much, and moves a quarter as fast (γ = 0.2, not 0.05).
    With theirs the step swings over two powers of ten before it settles. `step` is what burn-in uses next; `adapted`
    the smoothed value that is frozen afterwards.
    """

    first: float
    target: float = 0.7
    error: float = field(default=0.0)
    log_smoothed: float = field(default=0.0)
    count: int = field(default=0)

    @property
    def step(self) -> float:
        """The step size of the next burn-in transition."""
        if self.count == 0:
            return self.first
        return self.first * math.exp(-math.sqrt(self.count) / 0.2 * self.error)

    @property
    def adapted(self) -> float:
        """The step size to freeze."""
        return math.exp(self.log_smoothed) if self.count else self.first

    def update(self, acceptance: float) -> None:
        """Learn from the mean acceptance probability of one transition."""
        self.count += 1
        share = 1 / (self.count + 10)
        self.error = (1 - share) * self.error + share * (self.target - acceptance)
        weight = self.count**-0.75
        self.log_smoothed = weight * math.log(self.step) + (1 - weight) * self.log_smoothed


def first_step(
    log_likelihood: LogLikelihood, state: State, prior_variance: float, generator: torch.Generator
) -> float:
    """Return a step size whose single leapfrog step is accepted about half the time, by doubling or halving.

    Args:
        log_likelihood: Weights (K, P) -> log-likelihood (K,) and its gradient (K, P).
        state: The K chains.
        prior_variance: s² of the prior N(0, s² I).
        generator: Source of the trial transitions, on the CPU.
    """
    step, direction = math.sqrt(prior_variance) / 10, 0
    for _ in range(60):
        _, info = transition(
            log_likelihood, state, prior_variance=prior_variance, step=step, steps=1, generator=generator
        )
        wanted = 1 if float(info.acceptance.mean()) > 0.5 else -1
        if direction and wanted != direction:
            return step
        direction = wanted
        step *= 2.0**wanted
    return step
