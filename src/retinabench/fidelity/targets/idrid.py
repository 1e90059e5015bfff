"""The target `idrid`: IDRiD's photographs in the form of the drawn ones (`extremes.py`), its official split.

From the folder that `retinabench prepare idrid --source … --size 224 --out …` makes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from retinabench.core.errors import InputError
from retinabench.data.prepared import open_prepared
from retinabench.fidelity.targets.points import Points
from retinabench.fidelity.targets.pooling import BLOCK, SIZE, extremes

CURE = "Name by --data what `retinabench prepare idrid --source … --size 224 --out …` made."


def load(source: Path | None) -> tuple[Points, Points]:
    """Read the prepared photographs and reduce them.

    Raises `InputError` where the folder is absent, or not IDRiD at 224 px.
    """
    if source is None:
        raise InputError("the data of 'idrid' do not come with the package", hint=CURE)
    prepared = open_prepared(source)
    side = BLOCK * SIZE
    if prepared.name != "idrid" or prepared.size != side:
        raise InputError(f"is not IDRiD at {side} px", file=source, hint=CURE)
    records = prepared.records

    def points(split: str) -> Points:
        rows = np.flatnonzero(records.split == split)
        if not len(rows):
            raise InputError(f"holds no {split} photographs", file=source, hint=CURE)
        rows = rows[np.argsort(records.image_id[rows])]
        pictures = np.stack([extremes(prepared.images([row])[0]) for row in rows.tolist()])
        group = np.full(len(rows), "train" if split == "train" else "in_domain")
        return Points(pictures, records.grade[rows].astype(np.int64), group)

    return points("train"), points("test")
