"""Tasks: which rows of a data set train, validate and test. A new task is one function and one line in `TASKS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.data.records import Prepared, Records, open_prepared
from retinabench.errors import InputError, nearest

Rows = NDArray[np.intp]
SPLITS = ("train", "validation", "shifted_validation", "test", "shifted_test")
HOLD_OUT = 0.2  # of the training patients, where a data set has no validation split of its own


@dataclass(frozen=True, eq=False)
class Task:
    """A prepared data set, divided. `splits` maps every name of `SPLITS` that exists to its rows."""

    name: str
    data: Prepared
    splits: dict[str, Rows]
    notes: tuple[str, ...]

    @property
    def records(self) -> Records:
        """All rows of the data set."""
        return self.data.records


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
