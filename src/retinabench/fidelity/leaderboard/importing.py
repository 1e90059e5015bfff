"""Importing a published reference that consists of predictions alone, whose convergence cannot be checked.

The files of the approximate-inference competition of 2021 are in the repository `izmailovpavel/neurips_bdl_starter_kit` (no licence
file): for `kit-cifar10` `data/cifar10/probs.csv`, for `kit-imdb` `data/imdb/probs.csv` (the later), for `kit-medmnist`
`eval-phase/eval_data/medmnist_probs.csv` (the first 2,000 test images, inferred); for `kit-uci` and `kit-cifar10-shifted`
`uci_samples.csv` and `cifar_probs.csv` beside it, not seen by us. Labels prove their order, and the verdict is "unverified".
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.fidelity.reference.reference_file import QUALITIES, Reference, ReferenceAbout
from retinabench.fidelity.submissions.submission import read_submission
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.target import Target

PROOF = 4.0  # standard errors by which the accuracy must exceed the share of the most frequent class
ORDER_HINT = "Is it in another order than the predictions?"


def import_reference(file: Path, target: Target, labels: Path | None = None) -> Reference:
    """Read published predictions as a reference of kind "external", whose verdict is "unverified".

    `file` holds class probabilities (N, C) or draws of y (N, 1000 or more), in any format of a submission; `labels` N true classes, or
    y, one a line: they show the order and give usefulness.
    """
    if not target.points:
        known = "kit-cifar10, kit-imdb, kit-medmnist or kit-uci"
        raise InputError(f"'{target.name}' has data and a reference of its own", hint=f"Name {known}.")
    data = load(target)
    points = len(data.test)
    read, accuracy = read_submission(file, target, points), None
    truth = None if labels is None else _labels(labels, target, points)
    if truth is not None and read.likelihood == "categorical":
        accuracy = _proved(read.values, truth, labels)
    elif truth is not None:
        _check_followed(read.values.mean(axis=1), truth, labels)
    about = ReferenceAbout(
        task=target.name, target=target.fingerprint(data.sha256), data=data.sha256, chains=1, kind="external",
        origin="not stated", licence="not stated", order=target.preprocessing, accuracy=accuracy,
    )  # fmt: skip
    unknown = np.full((points, target.outputs), np.nan, np.float32)
    name = "chain_probs" if read.likelihood == "categorical" else "chain_draws"
    arrays = {**dict.fromkeys(QUALITIES, unknown), "epistemic": unknown[:, 0], name: read.values[None]}
    return Reference(about, **arrays, labels=truth)


def _labels(path: Path, target: Target, points: int) -> NDArray[Any]:
    hint = "Write one number a line, without a header: numpy.savetxt('labels.csv', labels)."
    try:
        values = np.loadtxt(path, ndmin=1, delimiter=",")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or 'it does not exist'}", file=path) from None
    except ValueError as error:  # UnicodeDecodeError is one
        problem = str(error).partition("\n")[0].rstrip(".")
        raise InputError(f"is not a list of numbers: {problem}", file=path, hint=hint) from None
    if values.shape != (points,) or not np.isfinite(values).all():
        problem = f"holds {values.size:,} numbers; '{target.name}' needs {points:,} finite ones"
        raise InputError(problem, file=path, hint=hint)
    if target.likelihood == "gaussian":
        return values.astype(np.float32)
    if (strange := np.flatnonzero(~np.isin(values, np.arange(target.outputs)))).size:
        problem = f"holds {values[strange[0]]:g}, which is not a class of 0 to {target.outputs - 1}"
        raise InputError(problem, file=path, row=int(strange[0]) + 1)
    return values.astype(np.int64)


def _proved(probs: NDArray[np.floating], truth: NDArray[np.int64], path: Path | None) -> float:
    """Return the accuracy; refuse labels that fit the rows no better than the most frequent class does."""
    accuracy = float((probs.argmax(axis=1) == truth).mean())
    share = float(np.bincount(truth).max() / len(truth))
    if accuracy < share + PROOF * np.sqrt(share * (1 - share) / len(truth)):
        problem = f"does not fit the rows: the accuracy is {accuracy:.3f}, that of the most frequent class {share:.3f}"
        raise InputError(problem, file=path, hint=ORDER_HINT)
    return accuracy


def _check_followed(means: NDArray[np.floating], truth: NDArray[Any], path: Path | None) -> None:
    """Refuse y (N,) whose correlation with the predicted means is not above 0 by `PROOF` standard errors of Fisher's z."""
    correlation = float(np.corrcoef(means, truth)[0, 1])
    if not np.arctanh(min(correlation, 1 - 1e-12)) * np.sqrt(len(truth) - 3) >= PROOF:
        problem = f"does not fit the rows: its correlation with the predicted means is {correlation:.3f}"
        raise InputError(problem, file=path, hint=ORDER_HINT)
