"""Methods: one literal dict. A new method is one file (see `base.py`) and one line in `METHODS`."""

from __future__ import annotations

from typing import Any

from retinabench.methods import dropout, map
from retinabench.methods.ensembles import anchored, ensemble, multiswag, sequential_anchored, swag
from retinabench.methods.mcmc import csghmc, sghmc, sgld
from retinabench.methods.posthoc import laplace, temperature  # fmt: skip
from retinabench.methods.variational import fsvi, gaussian_vi, ivon, mfvi, radial, rank1, vogn

# `ensemble` and `temperature` compose runs instead of training one: `run.py` computes their members first.
METHODS: dict[str, Any] = {
    "map": map,
    "dropout": dropout,
    "mfvi": mfvi,
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
