"""What the sampling entries share: a log-likelihood that counts its evaluations, and the form of a sampler."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.target import Target

BURN_IN = 0.3  # share of a chain's gradients


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


Advance = Callable[[int], None]
Sampler = Callable[[Target, Counted, int, torch.Generator, Advance], list[Tensor]]
"""(target, its log-likelihood, budget, source of noise, what counts gradients) -> kept states, (K, P) each."""


def prior_draws(target: Target, count: int, generator: torch.Generator) -> Tensor:
    """Return draws of the prior, (count, P)."""
    return math.sqrt(target.prior_variance) * torch.randn(count, target.parameters, generator=generator)
