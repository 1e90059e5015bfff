"""The entries `hmc` and `nuts`: one chain of the reference's sampler under the budget of all entries.

The chain starts at a draw of the prior. The first 30 % of the gradients adapt the step (dual averaging, `hmc.StepSize`) and are
dropped, those that search the first step included. A trajectory of `hmc` is a quarter period of the prior's oscillator, but at most a
twentieth of the budget; one of `nuts` ends where it turns back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from retinabench.fidelity.submissions.untrained.counted import BURN_IN, Advance, Counted, Sampler, prior_draws
from retinabench.fidelity.targets.target import Target
from retinabench.methods import hmc
from retinabench.methods.hmc import Nuts

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
    steps = min(
        hmc.steps_for(chain.step, chain.target.prior_variance), max(1, chain.budget // TRAJECTORIES), left
    )
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
    sampler = Nuts(
        chain.counted, chain.target.prior_variance, chain.step, chain.generator, max(1, min(10, depth))
    )
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


SAMPLERS: dict[str, Sampler] = {"hmc": partial(_chain, _hmc), "nuts": partial(_chain, _nuts)}
