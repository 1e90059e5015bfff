"""The two cameras."""

from __future__ import annotations

import numpy as np

from retinabench.data.synthetic.fundus import ImageTruth


def test_the_cameras_differ(records: dict[str, list[ImageTruth]]) -> None:
    blur = {p: np.median([t.camera["focus"] for t in rows]) for p, rows in records.items()}
    assert blur["shifted"] > 2 * blur["in_domain"]
