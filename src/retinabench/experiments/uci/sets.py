"""The nine UCI regression sets of Hernández-Lobato & Adams 2015, in the folder layout in which they are passed around.

A set is a folder `NAME` or `NAME/data`, perhaps below `UCI_Datasets`, with `data.txt` (one row per point, columns
separated by blanks), `index_features.txt` and `index_target.txt` (column numbers from 0). The random splits are those
of `index_train_0.txt`, `index_test_0.txt`, … where these files are there; else they are drawn by the recipe that made
them: NumPy's legacy generator with seed 1 draws one permutation per split, and the first round(0.9 N) rows train.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, nearest

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
LEGACY_SEED = 1


@dataclass(frozen=True)
class Protocol:
    """What a set is called, in which folders it is found, how many splits it has and how wide its network is."""

    title: str
    folders: tuple[str, ...]
    splits: int = 20
    hidden: int = 50


SETS: dict[str, Protocol] = {
    "boston": Protocol("Boston housing", ("bostonHousing", "boston")),
    "concrete": Protocol("Concrete", ("concrete",)),
    "energy": Protocol("Energy", ("energy",)),
    "kin8nm": Protocol("Kin8nm", ("kin8nm",)),
    "naval": Protocol("Naval propulsion plant", ("naval-propulsion-plant", "naval")),
    "power": Protocol("Power plant", ("power-plant", "power")),
    "protein": Protocol("Protein", ("protein-tertiary-structure", "protein"), splits=5, hidden=100),
    "wine": Protocol("Wine", ("wine-quality-red", "wine")),
    "yacht": Protocol("Yacht", ("yacht",)),
}


@dataclass(frozen=True)
class Regression:
    """One set: inputs (N, D), target (N,) in its own units, and per split the rows that train and those that test.

    train: (K, n); test: (K, m): all splits of a set are of one size. fingerprint: 12 digits of all of it.
    """

    name: str
    inputs: Floats
    target: Floats
    train: Rows
    test: Rows
    fingerprint: str


def known_set(name: str) -> Protocol:
    """Return the protocol of a set; raises `InputError` with the nearest name."""
    if name not in SETS:
        raise InputError(f"unknown UCI set '{name}'", hint=nearest(name, SETS))
    return SETS[name]


def available(source: Path) -> list[str]:
    """Return the names of the sets below `source`, in the order of the paper's table."""
    return [name for name in SETS if _folder(source, name) is not None]


def load_set(source: Path, name: str) -> Regression:
    """Read one set from below `source`.

    Raises `InputError` that names file, row and hint where something is missing, is no number or does not fit.
    """
    protocol = known_set(name)
    folder = _folder(source, name)
    if folder is None:
        raise InputError(
            f"holds no UCI set '{name}'",
            file=source,
            hint=f"Expected {protocol.folders[0]}/data.txt or {protocol.folders[0]}/data/data.txt below it.",
        )
    data = _read_table(folder / "data.txt")
    features = _read_columns(folder / "index_features.txt", data.shape[1])
    target = _read_columns(folder / "index_target.txt", data.shape[1])
    if len(target) != 1 or target[0] in features:
        raise InputError(
            "must name one column that is no feature",
            file=folder / "index_target.txt",
            hint="Compare it with index_features.txt.",
        )
    train, test = _splits(folder, len(data), protocol.splits)
    digest = hashlib.sha256()
    for part in (data, features, target, train, test):
        digest.update(np.ascontiguousarray(part).tobytes())
    return Regression(name, data[:, features], data[:, target[0]], train, test, digest.hexdigest()[:12])


def draw_splits(points: int, count: int) -> tuple[Rows, Rows]:
    """Draw the published random splits: (count, n) training and (count, m) test rows, n = round(0.9 points)."""
    # The published files came from this very generator; a newer one would draw other splits.
    random = np.random.RandomState(LEGACY_SEED)
    orders = np.stack([random.choice(points, points, replace=False) for _ in range(count)]).astype(np.int64)
    end = round(points * 9 / 10)
    return orders[:, :end], orders[:, end:]


def _folder(source: Path, name: str) -> Path | None:
    for base in (source, source / "UCI_Datasets"):
        for folder in SETS[name].folders:
            for place in (base / folder / "data", base / folder):
                if (place / "data.txt").is_file():
                    return place
    return None


def _splits(folder: Path, points: int, count: int) -> tuple[Rows, Rows]:
    if not (folder / "index_train_0.txt").is_file():
        return draw_splits(points, count)
    train, test = (
        [_read_columns(folder / f"index_{part}_{k}.txt", points) for k in range(count)]
        for part in ("train", "test")
    )
    for k, (fitted, held) in enumerate(zip(train, test, strict=True)):
        file = folder / f"index_test_{k}.txt"
        if np.intersect1d(fitted, held).size:
            raise InputError("names rows that also train", file=file, hint=f"See index_train_{k}.txt.")
        if (len(fitted), len(held)) != (len(train[0]), len(test[0])):
            raise InputError("is not as long as that of split 0", file=file, hint="Splits are of one size.")
    return np.stack(train), np.stack(test)


def _read_table(file: Path) -> Floats:
    """Read numbers separated by blanks: (N, columns)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an empty file is told below
        try:
            table = np.loadtxt(file, ndmin=2)
        except FileNotFoundError:
            raise InputError("does not exist", file=file, hint="Take the whole folder of the set.") from None
        except (ValueError, UnicodeDecodeError) as error:
            hint = "Expected numbers separated by blanks, the same count in every row."
            raise InputError(f"is no table of numbers: {error}", file=file, hint=hint) from None
    if not table.size:
        raise InputError("is empty", file=file, hint="Take the whole folder of the set.")
    bad = np.argwhere(~np.isfinite(table))
    if len(bad):
        row, column = bad[0]
        raise InputError(
            "is not finite", file=file, row=int(row) + 1, column=str(column), hint="Remove the row."
        )
    return np.asarray(table, np.float64)


def _read_columns(file: Path, limit: int) -> Rows:
    """Read whole numbers from 0 to below `limit`, all different."""
    values = _read_table(file).ravel()
    if (values != np.floor(values)).any() or values.min() < 0 or values.max() >= limit:
        raise InputError(f"must hold whole numbers from 0 to {limit - 1}", file=file, hint="See data.txt.")
    if len(np.unique(values)) != len(values):
        raise InputError("names a number twice", file=file, hint="Every number stands once.")
    return values.astype(np.int64)
