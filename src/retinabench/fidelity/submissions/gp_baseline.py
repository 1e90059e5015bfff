"""Entries that train no network: the infinite-width limit. They take nothing of the budget of gradients.

The folder of a run holds `submission.npz` alone, written when it is whole; there is nothing to resume.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.progress import Progress
from retinabench.core.version import __version__
from retinabench.fidelity.submissions import infinite_width
from retinabench.fidelity.submissions.entries import WITHOUT_TRAINING
from retinabench.fidelity.submissions.submission import DRAWS, Submission, write_submission
from retinabench.fidelity.targets.data import TargetData
from retinabench.fidelity.targets.target import Target

DIRECT: dict[str, Callable[[Target, TargetData, int, int, Progress], NDArray[Any]]] = {
    "nngp": infinite_width.sample
}
"""name -> (target, data, draws, seed, progress) -> draws of y (N, draws)."""


def run_direct(
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
    """Predict a target's test points and return the submission's path, found or made. Raises `InputError` for overrides."""
    if overrides:
        raise InputError(f"'{name}' has no settings: {overrides[0]}", hint="Leave it out.")
    identity = target.fingerprint(data.sha256)
    file = out / f"{name}-{target.name}-seed-{seed}-{identity}" / "submission.npz"
    if file.is_file():
        progress.say(f"{WITHOUT_TRAINING[name]}, {target.name}, seed {seed}: done before")
        return file
    start = time.monotonic()
    draws = DIRECT[name](target, data, DRAWS, seed, progress)
    meta = {
        "task": target.name, "target": identity, "data": data.sha256, "method": name, "title": WITHOUT_TRAINING[name],
        "seed": seed, "run": {"method": {"name": name}}, "version": __version__,
        "budget": {"limit": budget, "used": 0.0, "over": False}, "seconds": round(time.monotonic() - start, 1),
    }  # fmt: skip
    write_submission(file, Submission(draws=draws.astype(np.float32), meta=meta))
    return file
