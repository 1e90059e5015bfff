"""Methods: one literal dict. A new method is one file (see `base.py`) and one line in `METHODS`."""

from __future__ import annotations

from typing import Any

from retinabench.methods import (
    anchored,
    csghmc,
    dropout,
    ensemble,
    fsvi,
    gaussian_vi,
    ivon,
    laplace,
    map,
    multiswag,
    radial,
    rank1,
    sequential_anchored,
    sghmc,
    sgld,
    swag,
    temperature,
    vi,
    vogn,
)  # fmt: skip

# `ensemble` and `temperature` compose runs instead of training one: `run.py` computes their members first.
METHODS: dict[str, Any] = {
    "map": map,
    "dropout": dropout,
    "mfvi": vi,
    "radial": radial,
    "rank1": rank1,
    "fsvi": fsvi,
    "laplace": laplace,
    "swag": swag,
    "ivon": ivon,
    "vogn": vogn,
    "gaussian_vi": gaussian_vi,
    "sgld": sgld,
    "sghmc": sghmc,
    "csghmc": csghmc,
    "multiswag": multiswag,
    "anchored": anchored,
    "sequential_anchored": sequential_anchored,
    "temperature": temperature,
    "ensemble": ensemble,
}
