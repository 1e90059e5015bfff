"""The nine UCI regression sets of Hernández-Lobato and Adams 2015, and splits with a gap.

| | |
|---|---|
| input | real features |
| target | one real number |
| splits | 20 random ones (5 of `protein`), nine tenths of the rows train; gap splits |
| citation | Hernández-Lobato and Adams 2015, ICML; Foong et al. 2019 (gap splits); Tsanas and Xifara 2012 (energy); Yeh 1998 (concrete) |

A set is a folder `NAME` or `NAME/data`, perhaps below `UCI_Datasets`, with `data.txt` (one row per item, columns
separated by blanks), `index_features.txt` and `index_target.txt` (column numbers from 0). The random splits are those
of `index_train_0.txt`, `index_test_0.txt`, … if these files exist; otherwise they are drawn by the recipe that made
them: NumPy's legacy generator with seed 1 draws one permutation per split, and the first round(0.9 N) rows train.

A gap split holds out the middle third of the rows by one feature. That of `energy` is published, as
`energy/gap/index_{train,test}_{0,2}.txt`: 512 rows train, 256 test. `read_middle_third` cuts that of any other set.
"""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.data.dataset import ArrayDataset, concatenate

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
LEGACY_SEED = 1
WHOLE_FOLDER = "Take the whole folder of the set."
ENERGY_FEATURES = 8
ENERGY_HINT = "Name the folder 'energy' of the UCI collection, with data.txt and gap/, by --data."


@dataclass(frozen=True)
class Protocol:
    """What a set is called, in which folders it is found, how many splits it has and how wide its network is."""

    title: str
    folders: tuple[str, ...]
    splits: int = 20
    hidden: int = 50


SETS: dict[str, Protocol] = {
    "boston": Protocol("Boston housing", ("bostonHousing", "boston")),
    **{name: Protocol(name.capitalize(), (name,)) for name in ("concrete", "energy", "kin8nm")},
    "naval": Protocol("Naval propulsion plant", ("naval-propulsion-plant", "naval")),
    "power": Protocol("Power plant", ("power-plant", "power")),
    "protein": Protocol("Protein", ("protein-tertiary-structure", "protein"), splits=5, hidden=100),
    "wine": Protocol("Wine", ("wine-quality-red", "wine")),
    "yacht": Protocol("Yacht", ("yacht",)),
}


@dataclass(frozen=True, eq=False)
class Regression:
    """One set with its random splits; `inputs` (N, D), `targets` (N,), `train` (splits, n), `test` (splits, N - n)."""

    name: str
    inputs: Floats
    targets: Floats
    train: Rows
    test: Rows
    fingerprint: str

    def __len__(self) -> int:
        return len(self.targets)


def known_set(name: str) -> Protocol:
    if name not in SETS:
        raise InputError(f"unknown UCI set '{name}'", hint=nearest(name, SETS))
    return SETS[name]


def available(source: Path) -> list[str]:
    """Return the names of the sets below `source`, in the order of the paper's table."""
    return [name for name in SETS if _folder(source, name) is not None]


def read(source: Path, name: str) -> Regression:
    protocol = known_set(name)
    folder = _folder(source, name)
    if folder is None:
        hint = f"Expected {protocol.folders[0]}/data.txt or {protocol.folders[0]}/data/data.txt below it."
        raise InputError(f"holds no UCI set '{name}'", file=source, hint=hint)
    data, features, target = _read_set(folder)
    train, test = _splits(folder, len(data), protocol.splits)
    digest = hashlib.sha256()
    for part in (data, features, target, train, test):
        digest.update(np.ascontiguousarray(part).tobytes())
    return Regression(name, data[:, features], data[:, target[0]], train, test, digest.hexdigest()[:12])


def read_gap(source: Path | None, split: int = 0) -> ArrayDataset:
    """Read a gap split of `energy` from its own folder, with the splits ``train`` and ``test`` (group ``gap``)."""
    if source is None:
        raise InputError("the data of 'energy' do not come with the package", hint=ENERGY_HINT)
    table = _read_table(source / "data.txt", ENERGY_HINT)
    if table.shape[1] <= ENERGY_FEATURES:
        raise InputError(f"has shape {table.shape}; 8 features and the target are wanted", file=source / "data.txt")
    train, test = (
        _read_columns(source / "gap" / f"index_{part}_{split}.txt", len(table), ENERGY_HINT)
        for part in ("train", "test")
    )
    return _with_gap(table[:, :ENERGY_FEATURES], table[:, ENERGY_FEATURES], train, test)


def read_middle_third(source: Path | None, name: str, feature: int) -> ArrayDataset:
    """Read a set from its own folder and hold out the middle third of its rows by one feature (group ``gap``).

    References:
        Foong et al. 2019, "'In-Between' Uncertainty in Bayesian Neural Networks".
    """
    hint = f"Name the folder '{known_set(name).folders[0]}' of the UCI collection, with data.txt, by --data."
    if source is None:
        raise InputError(f"the data of '{name}' do not come with the package", hint=hint)
    table, features, target = _read_set(source, hint)
    if not 0 <= feature < len(features):
        wanted = f"names {len(features)} features; the gap is cut by number {feature}, counted from 0"
        raise InputError(wanted, file=source / "index_features.txt", hint=hint)
    held = middle_third(table[:, features[feature]])
    return _with_gap(table[:, features], table[:, target[0]], np.flatnonzero(~held), np.flatnonzero(held))


def _with_gap(inputs: Floats, targets: Floats, train: Rows, test: Rows) -> ArrayDataset:
    parts = {"train": (train, "train"), "test": (test, "gap")}
    of = {part: (inputs[rows], targets[rows], np.full(len(rows), group)) for part, (rows, group) in parts.items()}
    return concatenate({part: ArrayDataset(*columns) for part, columns in of.items()})


def middle_third(values: Floats) -> NDArray[np.bool_]:
    """Return which of N values are in the middle third: those of rank ⌊N/3⌋ to ⌊2N/3⌋ - 1, counted from 0.

    Ranks are those of a stable sort, so that of equal values the one with the lower row number comes first.

    Example:
        >>> middle_third(np.array([5.0, 1.0, 5.0, 5.0, 9.0, 0.0])).tolist()
        [True, False, True, False, False, False]
    """
    held = np.zeros(len(values), bool)
    held[np.argsort(values, kind="stable")[len(values) // 3 : 2 * len(values) // 3]] = True
    return held


def draw_splits(items: int, count: int) -> tuple[Rows, Rows]:
    """Draw the published random splits: (count, n) training and (count, m) test rows, n = round(0.9 items)."""
    # The published files came from this very generator; a newer one would draw other splits.
    random = np.random.RandomState(LEGACY_SEED)
    orders = np.stack([random.choice(items, items, replace=False) for _ in range(count)]).astype(np.int64)
    end = round(items * 9 / 10)
    return orders[:, :end], orders[:, end:]


def _folder(source: Path, name: str) -> Path | None:
    folders = [base / one for base in (source, source / "UCI_Datasets") for one in SETS[name].folders]
    places = (place for folder in folders for place in (folder / "data", folder))
    return next((place for place in places if (place / "data.txt").is_file()), None)


def _read_set(folder: Path, hint: str = WHOLE_FOLDER) -> tuple[Floats, Rows, Rows]:
    """Read the table of a set (N, columns), the columns that are features (D,), and that of the target (1,)."""
    data = _read_table(folder / "data.txt", hint)
    features = _read_columns(folder / "index_features.txt", data.shape[1], hint)
    target = _read_columns(folder / "index_target.txt", data.shape[1], hint)
    if len(target) != 1 or target[0] in features:
        problem, hint = "must name one column that is not a feature", "Compare it with index_features.txt."
        raise InputError(problem, file=folder / "index_target.txt", hint=hint)
    return data, features, target


def _splits(folder: Path, items: int, count: int) -> tuple[Rows, Rows]:
    if not (folder / "index_train_0.txt").is_file():
        return draw_splits(items, count)
    train, test = (
        [_read_columns(folder / f"index_{part}_{k}.txt", items) for k in range(count)] for part in ("train", "test")
    )
    for k, (fitted, held) in enumerate(zip(train, test, strict=True)):
        file = folder / f"index_test_{k}.txt"
        if np.intersect1d(fitted, held).size:
            raise InputError("names rows that also train", file=file, hint=f"See index_train_{k}.txt.")
        if (len(fitted), len(held)) != (len(train[0]), len(test[0])):
            raise InputError("is not as long as that of split 0", file=file, hint="Splits are of one size.")
    return np.stack(train), np.stack(test)


def _read_table(file: Path, hint: str = WHOLE_FOLDER) -> Floats:
    """Read numbers separated by blanks: (N, columns)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an empty file is told below
        try:
            table = np.loadtxt(file, ndmin=2)
        except FileNotFoundError:
            raise InputError("does not exist", file=file, hint=hint) from None
        except (ValueError, UnicodeDecodeError) as error:
            expected = "Expected numbers separated by blanks, the same count in every row."
            raise InputError(f"is not a table of numbers: {error}", file=file, hint=expected) from None
    if not table.size:
        raise InputError("is empty", file=file, hint=hint)
    for row, column in np.argwhere(~np.isfinite(table)).tolist():
        raise InputError("is not finite", file=file, row=row + 1, column=str(column), hint="Remove the row.")
    return np.asarray(table, np.float64)


def _read_columns(file: Path, limit: int, hint: str = WHOLE_FOLDER) -> Rows:
    """Read whole numbers from 0 to below `limit`, all different."""
    values = _read_table(file, hint).ravel()
    if (values != np.floor(values)).any() or values.min() < 0 or values.max() >= limit:
        raise InputError(f"must hold whole numbers from 0 to {limit - 1}", file=file, hint="See data.txt.")
    if len(np.unique(values)) != len(values):
        raise InputError("names a number twice", file=file, hint="Keep every number once.")
    return values.astype(np.int64)
