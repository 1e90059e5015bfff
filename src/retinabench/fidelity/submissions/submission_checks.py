"""What a submission must hold: arrays of the right shape, probabilities, and numbers that do not contradict each other."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.fidelity.targets.target import Target

DRAWS = 1000  # per test point of a regression
TOLERANCE = 1e-3  # of the sum of a row: text with four decimals passes


Floats = NDArray[np.floating]


def checked_probs(path: Path, values: Floats, target: Target, points: int, column: str) -> Floats:
    """Return probabilities that are valid.

    Args:
        path: The file, for messages.
        values: (N, C), rows that sum to 1.
        target: The target.
        points: Number of its test points, N.
        column: What they are called: ``probs`` or ``samples``, whose half precision is allowed ten times the error.

    Raises:
        InputError: The shape is wrong, or a row holds no probabilities.
    """
    classes = target.outputs
    if values.ndim != 2 or values.shape[1] != classes:
        raise InputError(
            f"has shape {values.shape}; the task '{target.name}' has {points} test points and {classes} classes",
            file=path,
            column=column,
        )
    _check_rows(path, values, target, points)
    outside = (values < -TOLERANCE) | (values > 1 + TOLERANCE)
    if outside.any():
        row, place = (int(k) for k in np.argwhere(outside)[0])
        raise InputError(
            f"holds {values[row, place]:.4g}, which is no probability",
            file=path,
            row=row + 1,
            hint="Are these logits? Apply the softmax.",
        )
    sums = values.sum(axis=1, dtype=np.float64)
    wrong = np.flatnonzero(np.abs(sums - 1) > (TOLERANCE if column == "probs" else 10 * TOLERANCE))
    if wrong.size:
        raise InputError(
            f"sums to {sums[wrong[0]]:.4g}",
            file=path,
            row=int(wrong[0]) + 1,
            hint=f"Divide each row by its sum ({wrong.size} of {points} rows do not sum to 1).",
        )
    return values


def check_samples(path: Path, probs: Floats, samples: Floats) -> None:
    """Refuse samples whose mean is not `probs`, up to the error of a mean of as many independent samples.

    Args:
        path: The file, for the message.
        probs: (N, C).
        samples: (S, N, C).

    Raises:
        InputError: They contradict each other.
    """
    mean, std = samples.mean(axis=0, dtype=np.float64), samples.std(axis=0, dtype=np.float64)
    difference, error = float(np.abs(mean - probs).mean()), float(std.mean()) / math.sqrt(len(samples))
    if difference > 3 * error + 2 * TOLERANCE:
        raise InputError(
            f"contradicts 'probs': its mean over {len(samples)} samples differs by {difference:.3g} on average, with a "
            f"standard error of {error:.2g}",
            file=path,
            column="samples",
            hint="Write the samples whose mean 'probs' is, or leave them out.",
        )


def checked_draws(path: Path, values: Floats, target: Target, points: int) -> Floats:
    """Return the first `DRAWS` draws of every test point.

    Args:
        path: The file, for messages.
        values: (N, S).
        target: The target.
        points: Number of its test points, N.

    Raises:
        InputError: The shape is wrong, a value is not finite, or there are too few draws.
    """
    if values.ndim != 2:
        raise InputError(
            f"has shape {values.shape}, needed is ({points}, {DRAWS})", file=path, column="draws"
        )
    _check_rows(path, values, target, points)
    if values.shape[1] < DRAWS:
        raise InputError(
            f"holds {values.shape[1]} draws per test point, wanted are {DRAWS:,}",
            file=path,
            hint="Draw y itself, noise included, not its mean.",
        )
    return values[:, :DRAWS]  # as many for all: the noise of the distance depends on their number


def _check_rows(path: Path, values: Floats, target: Target, points: int) -> None:
    if len(values) != points:
        turned = values.shape[1] == points
        raise InputError(
            f"holds {len(values)} rows; the task '{target.name}' has {points} test points",
            file=path,
            hint="Turn it: one row per test point."
            if turned
            else "One row per test point, in the task's order.",
        )
    broken = np.flatnonzero(~np.isfinite(values).all(axis=1))
    if broken.size:
        raise InputError(
            "holds a value that is not finite",
            file=path,
            row=int(broken[0]) + 1,
            hint=f"{broken.size} of {points} rows do.",
        )
