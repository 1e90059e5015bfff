"""The entries `mclmc`, `smc` and `svgd`: a chain without rejections, tempered particles, and particles that repel each other.

All start at draws of the prior. `mclmc` adapts its step and length in the first 30 % of the budget, which is dropped. `smc` and
`svgd` have few particles under small budgets, since each needs tens of gradients: a hundredth and a fiftieth of the budget, at most
100 and 50.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from retinabench.core.errors import InputError
from retinabench.fidelity.submissions.untrained.counted import BURN_IN, Advance, Counted, Sampler, prior_draws
from retinabench.fidelity.targets.target import Target
from retinabench.methods import hmc, particles

FEWEST = 5  # particles
LEAPFROGS = 5  # of a transition of `smc`
FINE = 4  # `smc` reaches λ = (k / n)^FINE in the k-th of n transitions at the latest
ACCEPTANCE = 0.8
RATE = 0.1  # of the steps of `svgd`, in stds of the prior


def _mclmc(
    target: Target, counted: Counted, budget: int, generator: torch.Generator, advance: Advance
) -> list[Tensor]:
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


def _smc(
    target: Target, counted: Counted, budget: int, generator: torch.Generator, advance: Advance
) -> list[Tensor]:
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


def _svgd(
    target: Target, counted: Counted, budget: int, generator: torch.Generator, advance: Advance
) -> list[Tensor]:
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


SAMPLERS: dict[str, Sampler] = {"mclmc": _mclmc, "smc": _smc, "svgd": _svgd}
