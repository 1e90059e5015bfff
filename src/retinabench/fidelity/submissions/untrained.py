"""Entries that train no network, such as the infinite-width limit, and so need no gradients.

The folder of a run holds `submission.npz` alone.
"""

from __future__ import annotations

import hashlib
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
from retinabench.fidelity.submissions.entries import UNTRAINED_TITLES
from retinabench.fidelity.submissions.implied import Implied
from retinabench.fidelity.submissions.submission import (
    DRAWS,
    About,
    Budget,
    Submission,
    submission_in,
    write_submission,
)
from retinabench.fidelity.targets.data import TargetData
from retinabench.fidelity.targets.target import Target

UNTRAINED: dict[str, Callable[[Target, TargetData, int, int, Progress], NDArray[Any]]] = {
    "nngp": infinite_width.sample
}
"""By name: (target, data, draws, seed, progress) -> draws of y, (N, draws)."""


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
    """Predict a target's test points, or find it done; return the path of the submission.

    Args:
        name: The entry.
        target: The target.
        data: Its data.
        budget: For the metadata.
        seed: Of all random streams.
        out: Parent of the run's folder.
        overrides: Must be empty.
        progress: Is told how far the work is.

    Raises:
        InputError: There are overrides.
    """
    if overrides:
        raise InputError(f"'{name}' has no settings: {overrides[0]}", hint="Leave it out.")
    fingerprint = target.fingerprint(data.sha256)
    file = submission_in(out / f"{name}-{target.name}-seed-{seed}-{fingerprint}")
    if file.is_file():
        progress.say(f"{UNTRAINED_TITLES[name]}, {target.name}, seed {seed}: done before")
        return file
    start = time.monotonic()
    draws = UNTRAINED[name](target, data, DRAWS, seed, progress)
    about = About(
        task=target.name, target=fingerprint, data=data.sha256, method=name, title=UNTRAINED_TITLES[name], seed=seed,
        run={"method": {"name": name}}, budget=Budget(limit=budget, used=0.0, over=False),
        seconds=round(time.monotonic() - start, 1), version=__version__,
        implied=Implied(
            temperature=target.temperature, prior_variance=target.prior_variance,
            how="a Gaussian process with the covariance of the prior's outputs",
        ),
        evidence={"predicted": hashlib.sha256(np.ascontiguousarray(draws).tobytes()).hexdigest()},
    )  # fmt: skip
    write_submission(file, Submission(draws=draws.astype(np.float32), about=about))
    return file
