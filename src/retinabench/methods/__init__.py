"""Methods: one literal dict. A new method is one file (see `base.py`) and one line in `METHODS`."""

from __future__ import annotations

from typing import Any

from retinabench.methods import (
    dropout,
    ensemble,
    fsvi,
    gaussian_vi,
    ivon,
    laplace,
    map,
    radial,
    rank1,
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
    "temperature": temperature,
    "ensemble": ensemble,
}
