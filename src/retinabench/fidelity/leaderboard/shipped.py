"""The submissions that come with the package: every entry and seed of the board, so that a lone new entry is ranked among them.

`boards/TASK.npz` of `retinabench-references` holds the submissions of a task in a compact form, which `pack` writes and `shipped_submissions` reads:

    meta        JSON: data and fingerprint of the target, and what each submission says of itself
    roots       (E, N, C) uint16, of a classification: square roots of the probabilities in units of 1 / 65,535, which hold small
                probabilities, and so the log-likelihood; rows are divided by their sum again
    stds        (E, N, C) uint16, of a classification: stds of the probabilities over posterior samples, in units of 1 / 65,535; the
                largest number where a submission had no samples
    quantiles   (E, N, 100) int16, of a regression: means of ten neighbouring sorted draws of y, in thousandths of a std; each but
                the first less the one before

Posterior samples are left out, so that the mutual information and disagreement of these entries are undefined. The precision of the
ranked measures is in `FORMS`, which `pack` asserts.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.files import write_bytes
from retinabench.core.results import JsonObject
from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import packaged
from retinabench.fidelity.submissions.submission import DRAWS, About, Submission
from retinabench.fidelity.targets.target import Target

FOLDER = packaged("boards") or Path(__file__).parent / "shipped"
SCHEMA = "retinabench.fidelity-shipped/2"
UNIT = 65_535
THOUSANDTHS = 1000
QUANTILES = 100
Floats = NDArray[np.float64]


def pack(target: Target, data: str, submissions: Sequence[Submission], folder: Path = FOLDER) -> Path:
    name, write, read, most = FORMS[target.likelihood]
    distance = distances.DISTANCE[target.likelihood]
    ordered = sorted(submissions, key=lambda one: (one.title, settings_of(one), one.about.seed or 0))
    stored = [write(one.values) for one in ordered]
    further = {"stds": np.stack([_stds(one) for one in ordered])} if name == "roots" else {}
    for one, values in zip(ordered, stored, strict=True):
        if (loss := float(distance(one.values, read(values)).mean())) > most:
            raise InputError(f"differs by {loss:.2g} in its compact form", file=one.source)
    meta: JsonObject = {"schema": SCHEMA, "target": target.fingerprint(data), "data": data}
    meta["submissions"] = [one.about.to_dict() for one in ordered]
    sink = io.BytesIO()
    np.savez_compressed(sink, meta=np.array(json.dumps(meta)), **{name: np.stack(stored)}, **further)  # type: ignore[arg-type]
    path = folder / f"{target.name}.npz"
    write_bytes(path, sink.getvalue())
    return path


def shipped_submissions(target: Target, data: str, folder: Path = FOLDER) -> list[Submission]:
    """Return the submissions of a task that come with the package; none for other data or another definition of the task."""
    path = folder / f"{target.name}.npz"
    if not path.is_file():
        return []
    name, _, read, _ = FORMS[target.likelihood]
    with np.load(path, allow_pickle=False) as file:
        meta: JsonObject = json.loads(str(file["meta"]))
        if (meta["data"], meta["target"]) != (data, target.fingerprint(data)):
            return []
        arrays = file[name]
        stds = file["stds"] if "stds" in file.files else [None] * len(arrays)
    kind = "draws" if target.likelihood == "gaussian" else "probs"
    return [
        Submission(about=About(**entry), source=path, std=_read_stds(std), **{kind: read(values)})
        for entry, values, std in zip(meta["submissions"], arrays, stds, strict=True)
    ]


def beside(own: Sequence[Submission], shipped: Sequence[Submission]) -> list[Submission]:
    """Return the shipped submissions without those that are among one's own: same title, run, seed and tier of the budget."""
    known = {_identity(one) for one in own}
    return [one for one in shipped if _identity(one) not in known]


def is_shipped(submission: Submission) -> bool:
    return submission.source is not None and submission.source.parent == FOLDER


def _identity(one: Submission) -> tuple[str, str, int | None, float | None]:
    """Return what one run of an entry alone has; the settings of what is not trained do not hold the tier."""
    tier = one.about.budget.limit if one.about.budget else None
    return one.title, settings_of(one), one.about.seed, tier


def settings_of(one: Submission) -> str:
    """Return the settings of a submission's run without its seed, as text."""
    return json.dumps({key: value for key, value in (one.about.run or {}).items() if key != "seed"}, sort_keys=True)


def _roots(probs: Floats) -> NDArray[np.uint16]:
    return np.asarray(np.rint(np.sqrt(np.clip(probs, 0, 1)) * UNIT), np.uint16)


def _probs(values: NDArray[np.uint16]) -> Floats:
    probs = np.square(values.astype(np.float64))
    return np.asarray(probs / probs.sum(axis=1, keepdims=True))


def _stds(one: Submission) -> NDArray[np.uint16]:
    std = one.std if one.samples is None else one.samples.std(axis=0, dtype=np.float64)
    if std is None:
        return np.full(one.values.shape, UNIT, np.uint16)
    return np.asarray(np.rint(std * UNIT), np.uint16)


def _read_stds(stored: NDArray[np.uint16] | None) -> Floats | None:
    return None if stored is None or (stored == UNIT).all() else stored / UNIT


def _quantiles(draws: Floats) -> NDArray[np.int16]:
    means = np.sort(draws, axis=1).reshape(len(draws), QUANTILES, -1).mean(axis=2)
    most = np.iinfo(np.int16).max
    whole = np.clip(np.rint(means * THOUSANDTHS), -most, most).astype(np.int16)
    steps = np.diff(whole, axis=1, prepend=np.int16(0))  # small numbers compress better; what wraps, wraps back
    return np.asarray(steps, np.int16)


def _draws(values: NDArray[np.int16]) -> Floats:
    whole = np.cumsum(values, axis=1, dtype=np.int16)
    return np.repeat(whole.astype(np.float64) / THOUSANDTHS, DRAWS // QUANTILES, axis=1)


# By likelihood: the name of the array, what writes it and what reads it, and the most that a stored submission may differ from
# the original: mean total variation, mean Wasserstein-1 in stds of y.
FORMS: dict[str, tuple[str, Callable[[Any], NDArray[Any]], Callable[[Any], Floats], float]] = {
    "categorical": ("roots", _roots, _probs, 1e-4),
    "gaussian": ("quantiles", _quantiles, _draws, 0.02),
}
