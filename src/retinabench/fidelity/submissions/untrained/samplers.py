"""Samplers of the posterior, exact and approximate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from retinabench.core.errors import InputError
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.target import Target
from retinabench.methods import hmc, particles
from retinabench.methods.hmc import Nuts

BURN_IN = 0.3  # share of a chain's gradients


@dataclass
class Counted:
    """A log-likelihood that counts its evaluations, of all training points by one chain each."""

    log_likelihood: hmc.LogLikelihood
    used: int = 0

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> values (K,), gradients (K, P)."""
        self.used += len(weights)
        return self.log_likelihood(weights)

    def gradient(self, weights: Tensor) -> Tensor:
        """(K, P) -> gradients (K, P); cheaper for some densities in closed form."""
        if not isinstance(self.log_likelihood, Density):
            return self(weights)[1]
        self.used += len(weights)
        return self.log_likelihood.gradient(weights)


Advance = Callable[[int], None]
Sampler = Callable[[Target, Counted, int, torch.Generator, Advance], list[Tensor]]
"""(target, its log-likelihood, budget, source of noise, what counts gradients) -> kept states, (K, P) each."""


def prior_draws(target: Target, count: int, generator: torch.Generator) -> Tensor:
    """Return draws of the prior, (count, P)."""
    return math.sqrt(target.prior_variance) * torch.randn(count, target.parameters, generator=generator)


TRAJECTORIES = 20  # of the whole budget, at least


@dataclass
class _Chain:
    """A chain under way: its density, state, step size and source of randomness, and its budget of gradients."""

    target: Target
    counted: Counted
    state: hmc.State
    size: hmc.StepSize
    generator: torch.Generator
    budget: int

    @property
    def adapting(self) -> bool:
        return self.counted.used < BURN_IN * self.budget

    @property
    def step(self) -> float:
        return self.size.step if self.adapting else self.size.adapted


def _hmc(chain: _Chain, left: int) -> None:
    steps = min(hmc.steps_for(chain.step, chain.target.prior_variance), max(1, chain.budget // TRAJECTORIES), left)
    adapting = chain.adapting
    chain.state, info = hmc.transition(
        chain.counted, chain.state, prior_variance=chain.target.prior_variance, step=chain.step, steps=steps,
        generator=chain.generator,
    )  # fmt: skip
    if adapting:
        chain.size.update(float(info.acceptance.mean()))


def _nuts(chain: _Chain, left: int) -> None:
    depth = int(math.log2(min(left + 1, 1 + max(1, chain.budget // TRAJECTORIES))))
    adapting = chain.adapting
    sampler = Nuts(chain.counted, chain.target.prior_variance, chain.step, chain.generator, max(1, min(10, depth)))
    chain.state, acceptance, _ = sampler.transition(chain.state)
    if adapting:
        chain.size.update(acceptance)


def _chain(
    transition: Callable[[_Chain, int], None],
    target: Target,
    counted: Counted,
    budget: int,
    generator: torch.Generator,
    advance: Advance,
) -> list[Tensor]:
    """Return the states of one chain after burn-in; its start alone where the search of the first step took the budget."""
    state = hmc.start(counted, prior_draws(target, 1, generator))
    first = hmc.first_step(counted, state, target.prior_variance, generator) / 4
    chain = _Chain(target, counted, state, hmc.StepSize(first, 0.8), generator, budget)
    kept: list[Tensor] = []
    told = 0
    while counted.used < budget:
        adapting = chain.adapting
        transition(chain, budget - counted.used)
        if not adapting:
            kept.append(chain.state.weights)
        advance(counted.used - told)
        told = counted.used
    return kept or [chain.state.weights]


EXACT: dict[str, Sampler] = {"hmc": partial(_chain, _hmc), "nuts": partial(_chain, _nuts)}
FEWEST = 5  # particles
LEAPFROGS = 5  # of a transition of `smc`
FINE = 4  # `smc` reaches λ = (k / n)^FINE in the k-th of n transitions at the latest
ACCEPTANCE = 0.8
RATE = 0.1  # of the steps of `svgd`, in stds of the prior


def _mclmc(target: Target, counted: Counted, budget: int, generator: torch.Generator, advance: Advance) -> list[Tensor]:
    """Return the states of one chain after burn-in."""
    if target.parameters < 2:
        raise InputError(
            f"'mclmc' needs at least two weights, and {target.name} has one",
            hint="Run 'hmc' or 'nuts', which take any number.",
        )
    scale = math.sqrt(target.prior_variance * target.parameters)  # of the prior's draws
    point = hmc.microcanonical_start(hmc.start(counted, prior_draws(target, 1, generator)), generator)
    size, length = hmc.VarianceStepSize(0.05 * scale), scale
    burned: list[Tensor] = []
    kept: list[Tensor] = []
    while counted.used < budget:
        burning = counted.used < BURN_IN * budget
        moved, error = hmc.microcanonical_step(
            counted, point, prior_variance=target.prior_variance, size=size.size, length=length,
            generator=generator,
        )  # fmt: skip
        finite = math.isfinite(float(error))
        if burning:
            size.update(float(error), target.parameters)
            burned.append(point.state.weights)
        elif not kept and len(burned) > FEWEST:
            length = float(torch.cat(burned[len(burned) // 2 :]).var(dim=0).sum().sqrt())
            length = max(length, 2 * size.size)
        point = moved if finite else hmc.microcanonical_start(point.state, generator)
        if not burning:
            kept.append(point.state.weights)
        advance(1)
    return kept


def _smc(target: Target, counted: Counted, budget: int, generator: torch.Generator, advance: Advance) -> list[Tensor]:
    """Return the particles after each transition at λ = 1."""
    count = _particles(budget, 100, 100)
    state = hmc.start(counted, prior_draws(target, count, generator))
    power, step = 0.0, 0.5 * math.sqrt(target.prior_variance)
    steps = min(LEAPFROGS, (budget - counted.used) // count)
    most = (budget - counted.used) // (count * steps)
    kept: list[Tensor] = []
    for number in range(1, most + 1):
        if power < 1:
            before, power = power, max(particles.next_power(state.value, power), (number / most) ** FINE)
            rows = particles.resampled((power - before) * state.value, generator)
            state = hmc.State(state.weights[rows], state.value[rows], state.gradient[rows])
        state, info = particles.moved(
            counted, state, power, prior_variance=target.prior_variance, step=step, steps=steps,
            generator=generator,
        )  # fmt: skip
        step *= math.exp(float(info.acceptance.mean()) - ACCEPTANCE)
        if power == 1:
            kept.append(state.weights)
        advance(count * steps)
    return kept


def _svgd(target: Target, counted: Counted, budget: int, generator: torch.Generator, advance: Advance) -> list[Tensor]:
    """Return the particles after the last step; Adam's steps, whose rate falls to 0 by half a cosine."""
    count = _particles(budget, 50, 50)
    weights = prior_draws(target, count, generator)
    steps, rate = budget // count, RATE * math.sqrt(target.prior_variance)
    optimizer = torch.optim.Adam([weights], lr=rate)
    for number in range(steps):
        optimizer.param_groups[0]["lr"] = rate * (1 + math.cos(math.pi * number / steps)) / 2
        slope = counted.gradient(weights) - weights / target.prior_variance
        weights.grad = -particles.stein_direction(weights, slope)
        optimizer.step()
        advance(count)
    return [weights]


def _particles(budget: int, share: int, most: int) -> int:
    return min(budget, max(FEWEST, min(most, budget // share)))


SAMPLERS: dict[str, Sampler] = {**EXACT, "mclmc": _mclmc, "smc": _smc, "svgd": _svgd}
