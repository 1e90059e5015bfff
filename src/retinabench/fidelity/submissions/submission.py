"""The submission: what a method predicts for the test points of a target, ours or anyone's.

    classification   probs (N, C) float64, each row sums to 1; samples (S, N, C), optional: single posterior samples
    regression       draws (N, 1000): samples of y itself, noise included, in the standardised unit of the target

Rows are the test points in the order of the target. Ours is an NPZ with these arrays and `meta`, a JSON text; what else may be
read is said in `submission_files.py`.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.atomic_files import write_bytes
from retinabench.core.errors import InputError
from retinabench.fidelity.submissions.submission_files import read_arrays
from retinabench.fidelity.targets.target import Target

SCHEMA = "retinabench.fidelity-submission/1"
FILE, EARLIER_FILE = "submission.npz", "answers.npz"  # the latter: of version 0.1
DRAWS = 1000  # per test point of a regression
TOLERANCE = 1e-3  # of the sum of a row: text with four decimals passes

Floats = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Submission:
    """Predictions for a target's test points.

    Args:
        probs: (N, C), for a classification.
        samples: Of single posterior samples, (S, N, C), optional.
        draws: Of y, noise included, (N, 1000), for a regression.
        meta: JSON: task, target, data, method, title, seed, run, budget, seconds.
        source: The file.
    """

    probs: Floats | None = None
    samples: Floats | None = None
    draws: Floats | None = None
    meta: dict[str, Any] = field(default_factory=dict)
    source: Path | None = None

    @property
    def title(self) -> str:
        """The title of the method, else its name, else the name of the file."""
        return str(self.meta.get("title") or self.meta.get("method") or (self.source and self.source.stem))


def submission_in(folder: Path) -> Path:
    """Return the path of the submission in a run's folder, whether it exists or not."""
    earlier = folder / EARLIER_FILE
    return earlier if earlier.is_file() and not (folder / FILE).is_file() else folder / FILE


def write_submission(path: Path, submission: Submission) -> None:
    """Write our own NPZ atomically: probs float64, samples float16, draws float32."""
    arrays: dict[str, Any] = {
        "meta": np.array(json.dumps({"schema": SCHEMA, **submission.meta}, allow_nan=False))
    }
    kinds = {"probs": np.float64, "samples": np.float16, "draws": np.float32}
    for name, kind in kinds.items():
        values = getattr(submission, name)
        if values is not None:
            arrays[name] = np.asarray(values, kind)
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)
    write_bytes(path, sink.getvalue())


def read_submission(path: str | Path, target: Target, points: int, data: str = "") -> Submission:
    """Read and check a submission.

    Args:
        path: The file.
        target: The target.
        points: Number of its test points.
        data: SHA-256 of its arrays; empty if unknown.

    Returns:
        The submission.

    Raises:
        InputError: The file is damaged, of another target or data, or its values are not valid; names file and row.
    """
    path = Path(path)
    arrays, meta = read_arrays(path, target)
    _check_origin(path, meta, target, data)
    wanted = "probs" if target.likelihood == "categorical" else "draws"
    if wanted == "probs" and "probs" not in arrays and "samples" in arrays:
        arrays["probs"] = np.asarray(arrays["samples"], np.float64).mean(axis=0)
    if wanted not in arrays:
        columns = f"prob_0 … prob_{target.outputs - 1}" if wanted == "probs" else f"draw_0 … draw_{DRAWS - 1}"
        raise InputError(
            f"holds no '{wanted}', which the task '{target.name}' asks for",
            file=path,
            hint=f"An array '{wanted}', or columns {columns}.",
        )
    if wanted == "draws":
        return Submission(draws=_checked_draws(path, arrays["draws"], target, points), meta=meta, source=path)
    probs = _checked_probs(path, arrays["probs"], target, points, "probs")
    samples = arrays.get("samples")
    if samples is not None:
        if samples.ndim != 3:
            raise InputError(f"has shape {samples.shape}, needed is (S, N, C)", file=path, column="samples")
        for one in samples:
            _checked_probs(path, np.asarray(one, np.float64), target, points, "samples")
    return Submission(probs=probs, samples=samples, meta=meta, source=path)


def _check_origin(path: Path, meta: dict[str, Any], target: Target, data: str) -> None:
    """Refuse a submission that says it belongs to another task or to other data."""
    if meta.get("task", target.name) != target.name:
        raise InputError(
            f"is for the task '{meta['task']}', not '{target.name}'",
            file=path,
            hint=f"--task {meta['task']}",
        )
    if data and meta.get("data", data) != data:
        raise InputError(
            f"is for other data (SHA-256 {str(meta['data'])[:12]}…, not {data[:12]}…)",
            file=path,
            hint="Only submissions for the same test points can be compared.",
        )
    if data and meta.get("target", target.fingerprint(data)) != target.fingerprint(data):
        raise InputError(
            f"is for another definition of '{target.name}'",
            file=path,
            hint="It was made by another version of the targets: run the method again.",
        )


def _checked_probs(path: Path, values: Floats, target: Target, points: int, column: str) -> Floats:
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


def _checked_draws(path: Path, values: Floats, target: Target, points: int) -> Floats:
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
