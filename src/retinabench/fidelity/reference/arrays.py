"""The arrays of a reference: what a posterior predicts for the test points, with its accuracy and its evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.fidelity.reference.about import ReferenceAbout

Floats = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class ReferenceArrays:
    """The content of a reference file; which arrays there are depends on the likelihood.

    `reference_file.py` lists the arrays; `about` is what it says of itself.
    """

    about: ReferenceAbout
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
        return self.about.kind == "external"

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self.about.chains
