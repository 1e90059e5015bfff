"""The entries `hmc` and `nuts`: one chain of the reference's sampler under the budget of all entries.

The chain starts at a draw of the prior. The first 30 % of the gradients adapt the step (dual averaging, `hmc.StepSize`) and are
dropped, those that search the first step included; each full-batch gradient is one evaluation per training example. A trajectory
of `hmc` is a quarter period of the prior's oscillator, but at most a twentieth of the budget; one of `nuts` ends where it turns back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from retinabench.core.progress import Progress
from retinabench.core.random_streams import torch_generator
from retinabench.fidelity.targets.data import TargetData
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.target import Target
from retinabench.methods.mcmc import hmc
from retinabench.methods.mcmc.nuts import Nuts

BURN_IN, SHORTEST = 0.3, 20  # share of the gradients; least number of trajectories of the whole budget
MOST_STATES = 1000  # that are predicted with

Sampler = Callable[["_Chain", int], None]


@dataclass
class Counted:
    """A log-likelihood that counts its evaluations."""

    density: Density
    used: int = 0

    def __call__(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """(K, P) -> values (K,), gradients (K, P)."""
        self.used += len(weights)
        return self.density(weights)

    def gradient(self, weights: Tensor) -> Tensor:
        """(K, P) -> gradients (K, P)."""
        self.used += len(weights)
        return self.density.gradient(weights)


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
        hmc.steps_for(chain.step, chain.target.prior_variance), max(1, chain.budget // SHORTEST), left
    )
    adapting = chain.adapting
    chain.state, info = hmc.transition(
        chain.counted, chain.state, prior_variance=chain.target.prior_variance, step=chain.step, steps=steps,
        generator=chain.generator,
    )  # fmt: skip
    if adapting:
        chain.size.update(float(info.acceptance.mean()))


def _nuts(chain: _Chain, left: int) -> None:
    depth = int(math.log2(min(left + 1, 1 + max(1, chain.budget // SHORTEST))))
    adapting = chain.adapting
    sampler = Nuts(
        chain.counted, chain.target.prior_variance, chain.step, chain.generator, max(1, min(10, depth))
    )
    chain.state, acceptance, _ = sampler.transition(chain.state)
    if adapting:
        chain.size.update(acceptance)


SAMPLERS: dict[str, Sampler] = {"hmc": _hmc, "nuts": _nuts}


def sample(
    name: str, target: Target, data: TargetData, budget: int, seed: int, progress: Progress
) -> tuple[NDArray[np.float32], int]:
    """Return the predictions of the kept states (S, N, O), and the gradient evaluations that they took.

    Args:
        name: Of `SAMPLERS`.
        target: The target.
        data: Its data.
        budget: Gradient evaluations per training example, at least 20.
        seed: Of all random streams.
        progress: Is told how far the chain is.
    """
    torch.set_num_threads(1)
    density = Density.of(target, data)
    generator = torch_generator("cpu", seed, "exact sampler", name, target.name)
    start = math.sqrt(target.prior_variance) * torch.randn(1, target.parameters, generator=generator)
    counted = Counted(density)
    state = hmc.start(counted, start)
    first = hmc.first_step(counted, state, target.prior_variance, generator) / 4
    chain = _Chain(target, counted, state, hmc.StepSize(first, 0.8), generator, budget)
    kept: list[Tensor] = []
    with progress.track(f"{name}, {target.name}", budget, unit="gradients") as advance:
        told = 0
        while counted.used < budget:
            adapting = chain.adapting
            SAMPLERS[name](chain, budget - counted.used)
            if not adapting:
                kept.append(chain.state.weights)
            advance(counted.used - told)
            told = counted.used
    return predicted(density, kept), counted.used


def predicted(density: Density, kept: Sequence[Tensor]) -> NDArray[np.float32]:
    """Return the predictions (S, N, O) of the kept states, at most `MOST_STATES` that are evenly spaced.

    Args:
        density: Of the target.
        kept: Weights, (K, P) each.
    """
    weights = torch.cat(list(kept))
    rows = np.linspace(0, len(weights) - 1, min(len(weights), MOST_STATES)).round().astype(int)
    parts = [density.predict(weights[some]) for some in np.array_split(rows, -(-len(rows) // 50))]
    return torch.cat(parts).numpy()
