"""The result of an examination: counts, performance model, rates and claims, as numbers and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.bank import Bank

SCHEMA = "retinabench.examination/1"


@dataclass(frozen=True)
class Examination:
    """What the questions showed; see `concepts/__init__.py` for the JSON that `to_dict` returns.

    bins: (c, 100) int64, how often each bin of answers was hit (see `performance.bin_of`); uncertainty: (questions + 1,)
    mean over concepts and signs before the first question and after each; stopped: why no further question was asked.
    """

    bank: Bank
    strategy: str
    seed: int
    reading: str
    rules: str
    kernel: str
    stopped: str
    bins: NDArray[np.int64]
    uncertainty: NDArray[np.float64]
    claims: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The examination as JSON content."""
        raise NotImplementedError
