"""Methods: one literal dict. A new method is one file (see `base.py`) and one line in `METHODS`."""

from __future__ import annotations

from typing import Any

from retinabench.methods import dropout, ensemble, map, radial, rank1, vi

# `ensemble` composes runs instead of training one: it has a Config, and `run.py` expands it into its members.
METHODS: dict[str, Any] = {
    "map": map,
    "dropout": dropout,
    "mfvi": vi,
    "radial": radial,
    "rank1": rank1,
    "ensemble": ensemble,
}
