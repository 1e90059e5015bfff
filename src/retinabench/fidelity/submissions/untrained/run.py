"""Entries without a training loop: the infinite-width limits, and samplers.

Each evaluation of the likelihood of all training points by a chain or particle is one evaluation per training example. The
infinite-width limits take what their chains need, whatever the budget, and have a track of their own. The folder of a run holds `submission.npz` alone; a killed run begins again and writes the same bits.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from retinabench.core.errors import InputError
from retinabench.core.progress import Progress
from retinabench.core.random_streams import torch_generator
from retinabench.core.results import number_text
from retinabench.core.version import __version__
from retinabench.fidelity.submissions.entries import UNTRAINED_TITLES
from retinabench.fidelity.submissions.submission import (
    DRAWS,
    About,
    Budget,
    Implied,
    Submission,
    submission_in,
    submission_of,
    write_submission,
)
from retinabench.fidelity.submissions.untrained import infinite_width, samplers
from retinabench.fidelity.submissions.untrained.samplers import SAMPLERS, Counted
from retinabench.fidelity.targets.data import TargetData
from retinabench.fidelity.targets.density import Density
from retinabench.fidelity.targets.target import Target

FEWEST_GRADIENTS = 20  # of a budget: one for each of the trajectories that a chain makes at least
MOST_STATES = 1000  # that are predicted with

HOW = {
    "nngp": "a Gaussian process with the covariance of the prior's outputs",
    "ntk": "a Gaussian process with the covariance of the linear expansion at random weights",
    "hmc": "draws of one chain",
    "nuts": "draws of one chain",
    "mclmc": "draws of one chain, up to the error of its step",
    "mams": "draws of one chain",
    "mile": "draws of chains from optimised starts, up to the error of their step",
}


def sample(
    name: str, target: Target, data: TargetData, budget: int, seed: int, progress: Progress
) -> tuple[NDArray[np.floating], int]:
    """Return predictions (S, N, O), or draws of y (N, 1000), and the gradient evaluations that they took."""
    if name in infinite_width.KERNELS:
        return infinite_width.sample(target, data, DRAWS, seed, progress, name)
    torch.set_num_threads(1)
    density = Density.of(target, data)
    counted = Counted(density)
    stream = "exact sampler" if name in samplers.EXACT else "approximate sampler"
    generator = torch_generator("cpu", seed, stream, name, target.name)
    with progress.track(f"{name}, {target.name}", budget, unit="gradients") as advance:
        kept = SAMPLERS[name](target, counted, budget, generator, advance)
    return _predicted(density, kept), counted.used


def _predicted(density: Density, kept: Sequence[Tensor]) -> NDArray[np.float32]:
    """Return the predictions (S, N, O) of states (K, P) each, of at most `MOST_STATES` that are evenly spaced."""
    weights = torch.cat(list(kept))
    rows = np.linspace(0, len(weights) - 1, min(len(weights), MOST_STATES)).round().astype(int)
    parts = [density.predict(weights[some]) for some in np.array_split(rows, -(-len(rows) // 50))]
    return torch.cat(parts).numpy()


def run_untrained(
    name: str,
    target: Target,
    data: TargetData,
    *,
    budget: float,
    seed: int,
    out: Path,
    overrides: Sequence[str],
    progress: Progress,
) -> Path:
    """Predict a target's test points, or find it done; return the path of the submission."""
    if overrides:
        raise InputError(f"'{name}' has no settings: {overrides[0]}", hint="Leave it out.")
    if name not in infinite_width.KERNELS and budget < FEWEST_GRADIENTS:
        raise InputError(
            f"'{name}' needs a budget of at least {FEWEST_GRADIENTS} gradients per example, not {budget:g}",
            hint="Give a larger --budget.",
        )
    fingerprint = target.fingerprint(data.sha256)
    tier = f"-budget-{number_text(budget)}" if name not in infinite_width.KERNELS else ""
    file = submission_in(out / f"{name}-{target.name}-seed-{seed}{tier}-{fingerprint}")
    if file.is_file():
        progress.say(f"{UNTRAINED_TITLES[name]}, {target.name}, seed {seed}: done before")
        return file
    start = time.monotonic()
    predicted, gradients = sample(name, target, data, int(budget), seed, progress)
    limit = None if name in infinite_width.KERNELS else budget
    about = About(
        task=target.name, target=fingerprint, data=data.sha256, method=name, title=UNTRAINED_TITLES[name], seed=seed,
        run={"method": {"name": name}}, budget=Budget(limit=limit, used=gradients),
        seconds=round(time.monotonic() - start, 1), version=__version__,
        implied=Implied(temperature=target.temperature, prior_variance=target.prior_variance, how=HOW[name]),
        evidence={"predicted": hashlib.sha256(np.ascontiguousarray(predicted).tobytes()).hexdigest()},
    )  # fmt: skip
    values = np.asarray(predicted, np.float32)
    submission = (
        Submission(draws=values, about=about) if values.ndim == 2 else submission_of(values, target, about, seed)
    )
    write_submission(file, submission)
    return file
