"""UCI energy with a gap (Foong et al. 2019): the middle third by one feature is held out, 512 rows train, 256 test.

Tsanas & Xifara (2012), energy efficiency of buildings: 8 features, the heating load. The competition scored one such
split and did not say which; `energy-gap` takes split 0, the gap in relative compactness; `energy-gap-wall`, what
hyper-parameters are tuned on, split 2, the gap in wall area.

Layout: `data.txt` and `gap/index_{train,test}_{0,2}.txt`, as in the collection of Hernández-Lobato & Adams (2015).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.fidelity.targets.points import Points

FEATURES = 8
CURE = "Name the folder 'energy' of the UCI collection, with data.txt and gap/, by --data."


def load(source: Path | None, split: int = 0) -> tuple[Points, Points]:
    """Read the split below `source`.

    Raises `InputError` that names the file where one is missing or no table of numbers.
    """
    if source is None:
        raise InputError("the data of 'energy' do not come with the package", hint=CURE)
    table = _numbers(source / "data.txt")
    if table.ndim != 2 or table.shape[1] <= FEATURES:
        raise InputError(
            f"has shape {table.shape}; 8 features and the target are wanted", file=source / "data.txt"
        )
    train, test = (
        _rows(source / "gap" / f"index_{part}_{split}.txt", len(table)) for part in ("train", "test")
    )
    inputs, heating = table[:, :FEATURES], table[:, FEATURES]
    return (
        Points(inputs[train], heating[train], np.full(len(train), "train")),
        Points(inputs[test], heating[test], np.full(len(test), "gap")),
    )


def _rows(file: Path, rows: int) -> NDArray[np.intp]:
    index = _numbers(file).astype(np.intp)
    if not index.size or index.min() < 0 or index.max() >= rows:
        raise InputError(f"names rows outside 0 to {rows - 1}", file=file)
    return index


def _numbers(file: Path) -> NDArray[np.float64]:
    try:
        return np.loadtxt(file)
    except FileNotFoundError:
        raise InputError("is missing", file=file, hint=CURE) from None
    except ValueError as error:
        raise InputError(f"is no table of numbers: {error}", file=file, hint=CURE) from None
