"""Data sets: a literal dict. A new one is one file and one line in `DATASETS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.data.datasets import aptos, eyepacs, folder, idrid, medmnist, messidor, synthetic
from retinabench.data.ingest.archives import shared_files
from retinabench.data.ingest.download import Remote
from retinabench.data.prepared import Records
from retinabench.data.preprocessing.preprocess import Recipe, picture


def _photograph(source: str, root: Path | None, recipe: Recipe) -> NDArray[np.uint8]:
    """Read one photograph below `root`, from a folder or an archive."""
    files = shared_files(root or Path())
    return picture(files.read(source), recipe, files.where(source))


def _stamp(source: str, root: Path | None) -> str:
    """Return another text when the bytes of one photograph below `root` may have changed; '' for drawn ones."""
    return shared_files(root).stamp(source) if root is not None else ""


@dataclass(frozen=True)
class Dataset:
    """How a data set is read: its rows, one picture (size, size, 3) by its `source`, and where its files come from.

    records: (source, survey=…, **options) -> Records. steps: how to get the files by hand. remote: the file that can be
    downloaded without a login, for a picture size. stamp: size and time of change of the file that holds a picture.
    """

    records: Callable[..., Records]
    steps: str
    read: Callable[[str, Path | None, Recipe], NDArray[np.uint8]] = _photograph
    remote: Callable[[int], Remote] | None = None
    stamp: Callable[[str, Path | None], str] = _stamp


DATASETS: dict[str, Dataset] = {
    "synthetic": Dataset(synthetic.records, synthetic.STEPS, read=synthetic.read),
    "eyepacs": Dataset(eyepacs.records, eyepacs.STEPS, remote=lambda size: eyepacs.SOLUTION),
    "aptos": Dataset(aptos.records, aptos.STEPS),
    "idrid": Dataset(idrid.records, idrid.STEPS),
    "messidor": Dataset(messidor.records, messidor.STEPS),
    "retinamnist": Dataset(
        medmnist.records,
        medmnist.STEPS,
        read=medmnist.read,
        remote=medmnist.remote,
        stamp=medmnist.stamp_of,
    ),
    "folder": Dataset(folder.records, folder.STEPS),
}


def find_dataset(name: str) -> Dataset:
    """Return the data set of that name, or raise `InputError` with the nearest valid one."""
    if name not in DATASETS:
        raise InputError(f"unknown data set '{name}'", hint=nearest(name, DATASETS))
    return DATASETS[name]
