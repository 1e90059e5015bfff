"""The arrays of a reference: what a posterior predicts for the test points, with its accuracy and its evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import JsonObject

Floats = NDArray[np.floating]
EXTERNAL = "external"
"""`kind` in the metadata of a reference that was imported: predictions alone, without chains and diagnostics."""
QUADRATURE = "quadrature"
"""`kind` in the metadata of a reference without chains: the two "chains" are integrals on two grids."""


@dataclass(frozen=True, eq=False)
class ReferenceArrays:
    """The content of a reference file; which arrays there are depends on the likelihood.

    `reference_file.py` lists the arrays; `meta` is the JSON of the file, which is written and judged here and read through
    the properties.
    """

    meta: JsonObject
    rhat: Floats
    ess_bulk: Floats
    ess_tail: Floats
    mcse: Floats
    epistemic: Floats
    chain_probs: Floats | None = None
    samples: Floats | None = None
    pairwise_disagreement: Floats | None = None
    chain_draws: Floats | None = None
    states: Floats | None = None
    half_states: Floats | None = None
    history: Floats | None = None
    half_history: Floats | None = None
    start: Floats | None = None
    labels: NDArray[Any] | None = None

    @property
    def external(self) -> bool:
        """Whether it was imported, without chains."""
        return self.meta.get("kind") == EXTERNAL

    @property
    def exact(self) -> bool:
        """Whether it was computed by quadrature, without chains."""
        return self.meta.get("kind") == QUADRATURE

    @property
    def chains(self) -> int:
        """Number of chains."""
        return int(self.meta["chains"])

    @property
    def chain_gradients(self) -> float | None:
        """Gradient evaluations per training example of one chain, burn-in included; None where it has no such chains."""
        try:
            return float((self.meta["burn_in"] + self.meta["kept"]) * self.meta["steps"])
        except (KeyError, TypeError):
            return None

    @property
    def published_ceiling(self) -> Mapping[str, float] | None:
        """By measure, the distance of one chain from the others that an imported reference states."""
        stated = self.meta.get("published_ceiling")
        return stated if isinstance(stated, dict) else None

    @property
    def accuracy(self) -> float | None:
        """Share of right classes of an imported reference whose labels are known."""
        return self.meta.get("accuracy")
