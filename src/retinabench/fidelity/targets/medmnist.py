"""DermaMNIST and RetinaMNIST at 28 px, from the published `.npz` files: the train split is the data, the test split asked.

DermaMNIST is the competition's MedMNIST task (7,007 and 2,005 pictures, 7 classes). It scored the first 2,000 of the
test pictures, in an order that cannot be had; this target scores all.

Yang et al. 2023, MedMNIST v2, Scientific Data 10:41; https://zenodo.org/records/10519652.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from retinabench.core.errors import InputError
from retinabench.data.datasets.retinamnist import read_array
from retinabench.fidelity.targets.points import Points

SIDE = 28


def load_dermamnist(source: Path | None) -> tuple[Points, Points]:
    """Read `dermamnist.npz`: that file, or the folder that holds it."""
    return _load(source, "dermamnist.npz", classes=7)


def load_retinamnist(source: Path | None) -> tuple[Points, Points]:
    """Read `retinamnist.npz`: that file, or the folder that holds it."""
    return _load(source, "retinamnist.npz", classes=5)


def _load(source: Path | None, name: str, classes: int) -> tuple[Points, Points]:
    hint = f"Download {name} from https://zenodo.org/records/10519652 and name it by --data."
    if source is None:
        raise InputError(f"the data of '{name.removesuffix('.npz')}' do not come with the package", hint=hint)
    file = source / name if source.is_dir() else source
    return _part(file, "train", "train", classes), _part(file, "test", "clean", classes)


def _part(file: Path, split: str, group: str, classes: int) -> Points:
    pictures, labels = read_array(file, f"{split}_images"), read_array(file, f"{split}_labels")
    if pictures.dtype != np.uint8 or pictures.shape[1:] != (SIDE, SIDE, 3):
        raise InputError(
            f"{split}_images is {pictures.dtype} {pictures.shape}, not uint8 (N, {SIDE}, {SIDE}, 3)",
            file=file,
        )
    if labels.size != len(pictures) or not np.isin(labels, np.arange(classes)).all():
        raise InputError(f"{split}_labels are not {len(pictures):,} classes below {classes}", file=file)
    return Points(pictures, labels.reshape(-1).astype(np.int64), np.full(len(pictures), group))
