"""Importing a published reference that consists of predictions alone, whose convergence cannot be checked.

The files of the approximate-inference competition of 2021 are in the repository `izmailovpavel/neurips_bdl_starter_kit` (no licence
file): for `kit-cifar10` `data/cifar10/probs.csv`, for `kit-imdb` `data/imdb/probs.csv` (the later), for `kit-medmnist`
`eval-phase/eval_data/medmnist_probs.csv` (the first 2,000 test images, inferred); for `kit-uci` and `kit-cifar10-shifted`
`uci_samples.csv` and `cifar_probs.csv` beside it, not seen by us. Labels prove their order, and the verdict is "unverified".
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.fidelity.reference.reference_file import QUALITIES, Reference, ReferenceAbout
from retinabench.fidelity.scoring.measures import MEASURES, RANKED
from retinabench.fidelity.submissions.submission import read_submission
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.target import Target

PROOF = 4.0  # standard errors by which the accuracy must exceed the share of the most frequent class


def import_reference(
    file: Path,
    target: Target,
    *,
    origin: str,
    licence: str,
    order: str = "",
    labels: Path | None = None,
    ceiling: Sequence[str] = (),
) -> Reference:
    """Read published predictions as a reference of kind "external", whose verdict is "unverified".

    Shapes: `file` (N, C).
    """
    if not target.points:
        known = "kit-cifar10, kit-imdb, kit-medmnist or kit-uci"
        raise InputError(f"'{target.name}' has data and a reference of its own", hint=f"Name {known}.")
    data = load(target)
    points = len(data.test)
    read = read_submission(file, target, points)
    truth = None if labels is None else _labels(labels, target, points)
    proved = None
    if truth is not None and read.probs is not None:
        proved = _proved(read.probs, truth, labels)
    elif truth is not None and read.draws is not None:
        _check_followed(read.draws.mean(axis=1), truth, labels)
    about = ReferenceAbout(
        task=target.name, target=target.fingerprint(data.sha256), data=data.sha256, chains=1, kind="external",
        origin=origin, licence=licence, order=order or target.preprocessing,
        published_ceiling=_ceiling(ceiling, target), accuracy=proved,
    )  # fmt: skip
    unknown = np.full((points, target.outputs), np.nan, np.float32)
    values = read.probs if read.probs is not None else read.draws
    assert values is not None
    name = "chain_probs" if read.probs is not None else "chain_draws"
    arrays = {**dict.fromkeys(QUALITIES, unknown), "epistemic": unknown[:, 0], name: values[None]}
    return Reference(about, **arrays, labels=truth)


def _labels(path: Path, target: Target, points: int) -> NDArray[Any]:
    hint = "Write one number a line, without a header: numpy.savetxt('labels.csv', labels)."
    try:
        values = np.loadtxt(path, ndmin=1, delimiter=",")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or 'it does not exist'}", file=path) from None
    except UnicodeDecodeError:
        raise InputError("is not a text file", file=path, hint=hint) from None
    except ValueError as error:
        raise InputError(
            f"is no list of numbers: {error}".partition("\n")[0].rstrip("."), file=path, hint=hint
        ) from None
    if not np.isfinite(values).all():
        raise InputError("holds a value that is not finite", file=path)
    if values.shape != (points,):
        raise InputError(f"holds {values.size:,} numbers; '{target.name}' has {points:,} points", file=path)
    if target.likelihood == "gaussian":
        return values.astype(np.float32)
    if not np.isin(values, np.arange(target.outputs)).all():
        row = int(np.flatnonzero(~np.isin(values, np.arange(target.outputs)))[0])
        raise InputError(
            f"holds {values[row]:g}, which is no class of 0 to {target.outputs - 1}", file=path, row=row + 1
        )
    return values.astype(np.int64)


def _proved(probs: NDArray[np.floating], truth: NDArray[np.int64], path: Path | None) -> float:
    """Return the accuracy; refuse labels that fit the rows no better than the most frequent class does."""
    accuracy = float((probs.argmax(axis=1) == truth).mean())
    share = float(np.bincount(truth).max() / len(truth))
    if accuracy < share + PROOF * np.sqrt(share * (1 - share) / len(truth)):
        raise InputError(
            f"does not fit the rows: the accuracy is {accuracy:.3f}, that of the most frequent class {share:.3f}",
            file=path,
            hint="Is it in another order than the predictions?",
        )
    return accuracy


def _check_followed(means: NDArray[np.floating], truth: NDArray[Any], path: Path | None) -> None:
    """Refuse y (N,) whose correlation with the predicted means is not above 0 by `PROOF` standard errors of Fisher's z."""
    found = float(np.corrcoef(means, truth)[0, 1])
    if not np.arctanh(min(found, 1 - 1e-12)) * np.sqrt(len(truth) - 3) >= PROOF:
        raise InputError(
            f"does not fit the rows: its correlation with the predicted means is {found:.3f}",
            file=path,
            hint="Is it in another order than the predictions?",
        )


def _ceiling(words: Sequence[str], target: Target) -> dict[str, float]:
    found = {}
    for word in words:
        name, _, value = word.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = np.nan
        if name not in RANKED[target.likelihood] or not np.isfinite(found[name]):
            names = " or ".join(f"{one}=VALUE" for one in RANKED[target.likelihood] if one in MEASURES)
            raise InputError(f"--ceiling '{word}' is not {names}")
        most = MEASURES[name].most
        if not 0 <= found[name] <= most:
            span = "0 or more" if np.isinf(most) else f"0 to {most:g}"
            raise InputError(f"--ceiling '{word}' is out of range", hint=f"Valid for {name}: {span}.")
    return found
