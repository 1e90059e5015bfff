"""The submission: what a method predicts for the test points of a target, ours or anyone's.

    classification   probs (N, C) float64, each row sums to 1; samples (S, N, C), optional: single posterior samples
    regression       draws (N, 1000): samples of y itself, noise included, in the standardised unit of the target

Rows are the test points in the order of the target. Ours is an NPZ with these arrays and `meta`, a JSON text; what else may be
read is said in `submission_files.py`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, ValidationError

from retinabench.core.atomic_files import write_bytes
from retinabench.core.errors import InputError, printable
from retinabench.core.settings import Frozen
from retinabench.fidelity.submissions.submission_files import read_arrays
from retinabench.fidelity.targets.target import Target
from retinabench.predictions.io import MAX_TITLE

SCHEMA = "retinabench.fidelity-submission/1"
FILE, EARLIER_FILE = "submission.npz", "answers.npz"  # the latter: of version 0.1
DRAWS = 1000  # per test point of a regression
TOLERANCE = 1e-3  # of the sum of a row: text with four decimals passes

Floats = NDArray[np.floating]


class Budget(Frozen):
    """Gradient evaluations per training example.

    Args:
        limit: Those allowed; None if unknown.
        used: Those taken.
        over: Whether they are more than allowed.
    """

    model_config = ConfigDict(extra="ignore")

    limit: float | None = None
    used: float = 0.0
    over: bool = False


class About(Frozen):
    """What a submission says of itself, as far as it does; entries of other names are kept.

    Args:
        task: Name of the target.
        target: Fingerprint of its definition and data.
        data: SHA-256 of its data.
        method: Name of the method, or of the entry.
        title: What readers call it.
        seed: Of the run.
        run: Settings of the run, as JSON.
        budget: What it cost.
        seconds: Of the training.
        version: Of this package.
        baseline: Whether it is a trivial submission, which is shown but not ranked.
    """

    model_config = ConfigDict(extra="allow")

    task: str | None = None
    target: str | None = None
    data: str | None = None
    method: str | None = None
    title: str | None = None
    seed: int | None = None
    run: dict[str, Any] | None = None
    budget: Budget | None = None
    seconds: float | None = None
    version: str | None = None
    baseline: bool = False

    @classmethod
    def read(cls, path: Path, meta: Mapping[str, Any]) -> About:
        """Return what the metadata of a file say; raises `InputError` where an entry is of another kind."""
        try:
            return cls(**meta)
        except (ValidationError, TypeError) as error:
            detail = (
                error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
            )
            key = ".".join(map(str, detail["loc"]))
            raise InputError(f"has unreadable metadata: {key}: {detail['msg']}", file=path) from None

    def changed(self, **entries: Any) -> About:
        """Return a copy with other entries."""
        return About(**{**self.to_dict(), **entries})

    def to_dict(self) -> dict[str, Any]:
        """Return what is said, as JSON."""
        return self.model_dump(mode="json", exclude_unset=True)


@dataclass(frozen=True, eq=False)
class Submission:
    """Predictions for a target's test points.

    Args:
        probs: (N, C), for a classification.
        samples: Of single posterior samples, (S, N, C), optional.
        draws: Of y, noise included, (N, 1000), for a regression.
        about: What it says of itself.
        source: The file.
    """

    probs: Floats | None = None
    samples: Floats | None = None
    draws: Floats | None = None
    about: About = field(default_factory=About)
    source: Path | None = None

    @property
    def title(self) -> str:
        """The title of the method, else its name, else the name of the file."""
        return printable(
            str(self.about.title or self.about.method or (self.source and self.source.stem)), MAX_TITLE
        )


def submission_in(folder: Path) -> Path:
    """Return the path of the submission in a run's folder, whether it exists or not."""
    earlier = folder / EARLIER_FILE
    return earlier if earlier.is_file() and not (folder / FILE).is_file() else folder / FILE


def write_submission(path: Path, submission: Submission, *, checked: bool = False) -> None:
    """Write our own NPZ atomically: probs float64, samples float16, draws float32.

    Args:
        path: The file.
        submission: What to write.
        checked: Whether its checksum is listed.
    """
    arrays: dict[str, Any] = {
        "meta": np.array(json.dumps({"schema": SCHEMA, **submission.about.to_dict()}, allow_nan=False))
    }
    kinds = {"probs": np.float64, "samples": np.float16, "draws": np.float32}
    for name, kind in kinds.items():
        values = getattr(submission, name)
        if values is not None:
            arrays[name] = np.asarray(values, kind)
    sink = io.BytesIO()
    np.savez_compressed(sink, **arrays)
    write_bytes(path, sink.getvalue(), checked=checked)


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
    about = About.read(path, meta)
    _check_origin(path, about, target, data)
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
        return Submission(
            draws=_checked_draws(path, arrays["draws"], target, points), about=about, source=path
        )
    probs = _checked_probs(path, arrays["probs"], target, points, "probs")
    samples = arrays.get("samples")
    if samples is not None:
        if samples.ndim != 3:
            raise InputError(f"has shape {samples.shape}, needed is (S, N, C)", file=path, column="samples")
        for one in samples:
            _checked_probs(path, np.asarray(one, np.float64), target, points, "samples")
    return Submission(probs=probs, samples=samples, about=about, source=path)


def _check_origin(path: Path, about: About, target: Target, data: str) -> None:
    """Refuse a submission that says it belongs to another task or to other data."""
    if about.task not in (None, target.name):
        raise InputError(
            f"is for the task '{about.task}', not '{target.name}'",
            file=path,
            hint=f"--task {about.task}",
        )
    if data and about.data not in (None, data):
        raise InputError(
            f"is for other data (SHA-256 {str(about.data)[:12]}…, not {data[:12]}…)",
            file=path,
            hint="Only submissions for the same test points can be compared.",
        )
    if data and about.target not in (None, target.fingerprint(data)):
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
