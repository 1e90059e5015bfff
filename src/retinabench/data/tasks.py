"""Tasks: which rows of a data set train, validate and test. A new task is one function and one line in `TASKS`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.data.records import Prepared, Records, open_prepared
from retinabench.errors import InputError, nearest

Rows = NDArray[np.intp]
SPLITS = ("train", "validation", "shifted_validation", "test", "shifted_test")
HOLD_OUT = 0.2  # of the training patients, where a data set has no validation split of its own


@dataclass(frozen=True, eq=False)
class Part:
    """Some splits of a task, as `rb.evaluate` takes them: labels, and pictures in batches; every column (N,)."""

    data: Prepared
    rows: Rows
    domain: NDArray[np.str_]
    split: NDArray[np.str_]
    batch_size: int = 64

    def __getattr__(self, column: str) -> NDArray[Any]:
        """Return image_id, label, grade or patient_id."""
        if column not in ("image_id", "label", "grade", "patient_id"):
            raise AttributeError(column)
        return np.asarray(getattr(self.data.records, column)[self.rows])

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self) -> Iterator[NDArray[np.uint8]]:
        """Yield pictures (B, H, W, 3) in order."""
        for start in range(0, len(self.rows), self.batch_size):
            yield self.data.images(self.rows[start : start + self.batch_size])


@dataclass(frozen=True, eq=False)
class Task:
    """A prepared data set, divided. `splits` maps every name of `SPLITS` that exists to its rows.

    `task["test"]` or `task["test", "shifted_test"]` gives labels and pictures, for `rb.evaluate`.
    """

    name: str
    data: Prepared
    splits: dict[str, Rows]
    notes: tuple[str, ...]

    @property
    def records(self) -> Records:
        """All rows of the data set."""
        return self.data.records

    def __getitem__(self, names: str | tuple[str, ...]) -> Part:
        """Return one split or several; raises `InputError` for one that the task does not have."""
        names = (names,) if isinstance(names, str) else names
        for name in names:
            if name not in self.splits:
                raise InputError(
                    f"the task '{self.name}' has no split '{name}'", cure=nearest(name, self.splits)
                )
        # The task's split, not the data set's own: a held-out validation split comes from training rows.
        of_row = np.repeat(names, [len(self.splits[name]) for name in names])
        return Part(
            data=self.data,
            rows=np.concatenate([self.splits[name] for name in names]),
            domain=np.where(np.char.startswith(of_row, "shifted"), "shifted", "in_domain"),
            split=np.char.replace(of_row, "shifted_", ""),
        )


def load_task(folder: str | Path, name: str = "country_shift") -> Task:
    """Open a prepared folder and divide it for the task `name`.

    Raises `InputError` where the folder or the name is unknown or a needed split is empty.
    """
    if name not in TASKS:
        raise InputError(f"unknown task '{name}'", cure=nearest(name, TASKS))
    data = open_prepared(folder)
    splits = {split: rows for split, rows in TASKS[name](data.records).items() if rows.size}
    for needed in ("train", "validation", "test"):
        if needed not in splits:
            raise InputError(f"the task '{name}' finds no images for its split '{needed}'", file=folder)
    for split in ("train", "validation"):
        if len(np.unique(data.records.label[splits[split]])) < 2:
            raise InputError(f"the split '{split}' of '{name}' holds one class only", file=folder)
    return Task(name, data, splits, tuple(_leaks(data.records, splits)))


def country_shift(records: Records) -> dict[str, Rows]:
    """Train and validate on one population; test on it and on another country's cameras (domain 'shifted')."""
    splits = in_domain(records)
    for split in ("validation", "test"):
        splits[f"shifted_{split}"] = np.flatnonzero((records.domain == "shifted") & (records.split == split))
    if splits["shifted_test"].size == 0:
        raise InputError(
            "country_shift needs test images of the domain 'shifted'", cure="Use the task 'in_domain'."
        )
    return splits


def in_domain(records: Records) -> dict[str, Rows]:
    """Train, validate and test on one population, by the data set's own split.

    A data set without a validation split gives a fifth of its training patients, stratified by grade.
    """
    mine = records.domain == "in_domain"
    train, validation, test = (
        np.flatnonzero(mine & (records.split == split)) for split in ("train", "validation", "test")
    )
    if validation.size == 0:
        train, validation = hold_out(records, train)
    return {"train": train, "validation": validation, "test": test}


def hold_out(records: Records, rows: Rows, share: float = HOLD_OUT) -> tuple[Rows, Rows]:
    """Divide `rows` by patient into (rest, held out): every 1/share-th patient within each worst grade.

    A pure function of the records: no random numbers. Patients are ordered by id within their worst grade, so that
    every grade gives its share.
    """
    patients, of_row = np.unique(records.patient_id[rows], return_inverse=True)
    worst = np.zeros(len(patients), np.int64)
    np.maximum.at(worst, of_row, records.grade[rows].astype(np.int64))
    order = np.lexsort((patients, worst))
    out = np.zeros(len(patients), bool)
    step = round(1 / share)
    out[order[step // 2 :: step]] = True
    return rows[~out[of_row]], rows[out[of_row]]


def _leaks(records: Records, splits: dict[str, Rows]) -> list[str]:
    """Say aloud where a patient stands on both sides of a split."""
    train = np.unique(records.patient_id[splits["train"]])
    notes = []
    for split, rows in splits.items():
        shared = np.intersect1d(train, records.patient_id[rows]).size if split != "train" else 0
        if shared:
            notes.append(f"{shared} patient{'s' * (shared > 1)} of the split '{split}' also stand in 'train'")
    return notes


TASKS: dict[str, Callable[[Records], dict[str, Rows]]] = {
    "country_shift": country_shift,
    "in_domain": in_domain,
}
