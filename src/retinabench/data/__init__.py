"""Data sets and tasks: two literal dicts. A new data set is one file and one line in `DATASETS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.data import drawn, idrid
from retinabench.data.images import Recipe, picture
from retinabench.data.records import Records
from retinabench.errors import InputError, nearest


@dataclass(frozen=True)
class Dataset:
    """How a data set is read: its rows, and one picture (size, size, 3) by its `source`."""

    records: Callable[..., Records]
    read: Callable[[str, Path | None, Recipe], NDArray[np.uint8]]


def _photograph(source: str, root: Path | None, recipe: Recipe) -> NDArray[np.uint8]:
    path = (root or Path()) / source
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise InputError("does not exist", file=path) from None
    return picture(data, recipe, str(path))


DATASETS: dict[str, Dataset] = {
    "synthetic": Dataset(drawn.records, drawn.read),
    "idrid": Dataset(idrid.records, _photograph),
}


def find_dataset(name: str) -> Dataset:
    """Return the data set of that name, or raise `InputError` with the nearest valid one."""
    if name not in DATASETS:
        raise InputError(f"unknown data set '{name}'", cure=nearest(name, DATASETS))
    return DATASETS[name]
