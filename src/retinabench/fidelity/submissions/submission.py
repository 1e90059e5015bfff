"""The submission: what a method predicts for the test points of a target, ours or anyone's.

    classification   probs (N, C) float64, each row sums to 1; samples (S, N, C), optional: single posterior samples
    regression       draws (N, 1000): samples of y itself, noise included, in the standardised unit of the target

Rows are the test points in the order of the target. Ours is an NPZ with these arrays and `meta`, a JSON text; what else may be
read is said in `submission_files.py`.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, ValidationError

from retinabench.core.atomic_files import write_bytes
from retinabench.core.errors import InputError, printable
from retinabench.core.results import JsonObject
from retinabench.core.settings import Frozen
from retinabench.fidelity.submissions.implied import Implied, Track, departures_of
from retinabench.fidelity.submissions.submission_checks import (
    DRAWS,
    Floats,
    check_samples,
    checked_draws,
    checked_probs,
)
from retinabench.fidelity.submissions.submission_files import read_arrays
from retinabench.fidelity.targets.target import Target
from retinabench.predictions.io import MAX_TITLE

SCHEMA = "retinabench.fidelity-submission/1"
SCHEMAS = (SCHEMA, "retinabench.fidelity-answers/1")  # the latter: of version 0.1
KINDS = {"probs": np.float64, "samples": np.float16, "draws": np.float32}
SIGNED = ("task", "target", "data", "seed", "run", "budget", "implied", "evidence")
"""Metadata that the content hash covers, beside the arrays: all that decides where a submission stands."""
FILE, EARLIER_FILE = "submission.npz", "answers.npz"  # the latter: of version 0.1
MOST_GRADIENTS = 1e12  # per example, that a submission can state
TIERS = (100, 1_000, 10_000, 100_000)  # of the budget, in gradient evaluations per training example


class Budget(Frozen):
    """Gradient evaluations per training example.

    Args:
        limit: Those allowed; None if unknown.
        used: Those taken.
        over: Whether they are more than allowed.
    """

    model_config = ConfigDict(extra="ignore")

    limit: float | None = Field(None, ge=0, le=MOST_GRADIENTS, allow_inf_nan=False)
    used: float = Field(0.0, ge=0, le=MOST_GRADIENTS, allow_inf_nan=False)
    over: bool = False

    @property
    def tier(self) -> int | None:
        """The smallest of `TIERS` under which it took part; None above all of them."""
        most = self.used if self.limit is None else max(self.limit, self.used)
        return next((tier for tier in TIERS if most <= tier), None)


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
        implied: The posterior that it approximates.
        evidence: SHA-256 of the manifest of its run and of the predictions of its posterior; of counted runs only.
        content: SHA-256 of the arrays, and of what decides track and tier.
    """

    model_config = ConfigDict(extra="allow")

    task: str | None = None
    target: str | None = None
    data: str | None = None
    method: str | None = None
    title: str | None = None
    seed: int | None = None
    run: JsonObject | None = None
    budget: Budget | None = None
    seconds: float | None = None
    version: str | None = None
    baseline: bool = False
    implied: Implied | None = None
    evidence: dict[str, str] | None = None
    content: str | None = None

    @property
    def counted(self) -> bool:
        """Whether its budget was counted by `fidelity run`; any other is declared.

        The hashes show that nothing was changed by mistake. They are no proof against forgery, since anyone can compute them.
        """
        return bool(self.evidence) and self.content is not None

    @classmethod
    def read(cls, path: Path, meta: JsonObject) -> About:
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

    def to_dict(self) -> JsonObject:
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

    def departures(self, target: Target) -> list[str]:
        """Return in which points it departs from the target's posterior, in words."""
        return departures_of(self.about.run, self.about.implied, target)

    def track(self, target: Target) -> Track:
        """Return the track to which it belongs."""
        return "open" if self.departures(target) else "stated"

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


def content_hash(arrays: Mapping[str, NDArray[Any]], about: About) -> str:
    """Return the SHA-256 of the arrays in the types of `KINDS`, and of the metadata `SIGNED`."""
    stated = {key: value for key, value in about.to_dict().items() if key in SIGNED}
    digest = hashlib.sha256(json.dumps(stated, sort_keys=True).encode())
    for name, kind in KINDS.items():
        if name in arrays:
            array = np.ascontiguousarray(arrays[name], kind)
            digest.update(f"{name}{array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def write_submission(path: Path, submission: Submission, *, checked: bool = False) -> None:
    """Write our own NPZ atomically: probs float64, samples float16, draws float32.

    Args:
        path: The file.
        submission: What to write.
        checked: Whether its checksum is listed.
    """
    arrays: dict[str, Any] = {}
    for name, kind in KINDS.items():
        values = getattr(submission, name)
        if values is not None:
            arrays[name] = np.asarray(values, kind)
    about = submission.about
    if about.evidence is not None:
        about = about.changed(content=content_hash(arrays, about))
    meta = np.array(json.dumps({"schema": SCHEMA, **about.to_dict()}, allow_nan=False))
    sink = io.BytesIO()
    np.savez_compressed(sink, meta=meta, **arrays)
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
    _check_schema(path, meta)
    about = About.read(path, meta)
    _check_origin(path, about, target, data)
    if about.content is not None and about.content != content_hash(arrays, about):
        hint = "Copy it again from where it was written."
        raise InputError("was changed after it was written: its content hash differs", file=path, hint=hint)
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
            draws=checked_draws(path, arrays["draws"], target, points), about=about, source=path
        )
    probs = checked_probs(path, arrays["probs"], target, points, "probs")
    samples = arrays.get("samples")
    if samples is not None:
        if samples.ndim != 3:
            raise InputError(f"has shape {samples.shape}, needed is (S, N, C)", file=path, column="samples")
        if not len(samples):
            raise InputError("holds no sample", file=path, column="samples", hint="Leave the array out.")
        for one in samples:
            checked_probs(path, np.asarray(one, np.float64), target, points, "samples")
        check_samples(path, probs, samples)
    return Submission(probs=probs, samples=samples, about=about, source=path)


def _check_schema(path: Path, meta: JsonObject) -> None:
    """Refuse a file that says it is something else; a reference has `samples` too, and would be scored against itself."""
    if (schema := meta.get("schema")) not in (None, *SCHEMAS):
        raise InputError(
            f"is no submission: its schema is '{printable(str(schema), 80)}'",
            file=path,
            hint="Name a file that `retinabench fidelity run` wrote, or one of predictions alone.",
        )


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
