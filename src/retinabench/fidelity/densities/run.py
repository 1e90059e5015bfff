"""The package's samplers on a known density, at a counted budget."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from retinabench.core.errors import QUIET, InputError, Progress, nearest
from retinabench.core.random_streams import torch_generator
from retinabench.fidelity.densities.density import KnownDensity, find_density
from retinabench.fidelity.densities.draws import write_draws
from retinabench.fidelity.densities.functions import Floats
from retinabench.fidelity.submissions.entries import entry
from retinabench.methods.chains import Counted, Prior
from retinabench.methods.samplers import SAMPLERS

FEWEST_GRADIENTS = 100


def log_likelihood(known: KnownDensity, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return log π and its slopes less those of N(0, start² I), which the samplers add as the prior: (K, P) -> (K,), (K, P)."""
    w = weights.detach().numpy().astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        value = known.log_density(w) + 0.5 * np.square(w / known.start).sum(axis=1)
        slope = known.gradient(w) + w / known.start**2
    return torch.from_numpy(value), torch.from_numpy(slope).to(weights.dtype)


def sampled(name: str, known: KnownDensity, budget: int, seed: int, progress: Progress = QUIET) -> tuple[Floats, int]:
    """Return the draws (K, T, P) of an entry after burn-in, and the evaluations that all its chains took."""
    if name not in SAMPLERS:
        raise InputError(f"'{name}' cannot sample a density", hint=nearest(name, list(SAMPLERS)))
    if budget < FEWEST_GRADIENTS:
        raise InputError(f"a budget of {budget} gradients; needed are at least {FEWEST_GRADIENTS}")
    torch.set_num_threads(1)
    counted = Counted(lambda weights: log_likelihood(known, weights))
    generator = torch_generator("cpu", seed, "density", name, known.name)
    with progress.track(f"{name}, {known.name}", budget, unit="gradients") as advance:
        kept = SAMPLERS[name](Prior(known.dimension, known.start**2), counted, budget, generator, advance)
    return torch.stack(list(kept), dim=1).numpy().astype(np.float64), counted.used


def run_on_density(name: str, density: str, budget: float, seed: int, out: Path, progress: Progress = QUIET) -> Path:
    draws, used = sampled(name, find_density(density), int(budget), seed, progress)
    return write_draws(out, draws, density, entry(name).title, seed, used)
