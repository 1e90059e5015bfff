"""Entries without a training loop: the infinite-width limits.

They take what their chains need, whatever the budget, and have a track of their own. The folder of a run holds `submission.npz` alone;
a killed run begins again and writes the same bits.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from retinabench.core.errors import InputError
from retinabench.core.progress import Progress
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
from retinabench.fidelity.submissions.untrained import infinite_width
from retinabench.fidelity.targets.data import TargetData
from retinabench.fidelity.targets.target import Target

HOW = {
    "nngp": "a Gaussian process with the covariance of the prior's outputs",
    "ntk": "a Gaussian process with the covariance of the linear expansion at random weights",
}


def run_untrained(
    name: str, target: Target, data: TargetData, *, seed: int, out: Path, overrides: Sequence[str], progress: Progress
) -> Path:
    """Predict a target's test points, or find it done; return the path of the submission."""
    if overrides:
        raise InputError(f"'{name}' has no settings: {overrides[0]}", hint="Leave it out.")
    fingerprint = target.fingerprint(data.sha256)
    file = submission_in(out / f"{name}-{target.name}-seed-{seed}-{fingerprint}")
    if file.is_file():
        progress.say(f"{UNTRAINED_TITLES[name]}, {target.name}, seed {seed}: done before")
        return file
    start = time.monotonic()
    predicted, gradients = infinite_width.sample(target, data, DRAWS, seed, progress, name)
    about = About(
        task=target.name, target=fingerprint, data=data.sha256, method=name, title=UNTRAINED_TITLES[name], seed=seed,
        run={"method": {"name": name}}, budget=Budget(limit=None, used=gradients),
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
