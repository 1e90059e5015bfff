"""Points: inputs with their targets, and what kind of test point each one is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Points:
    """Inputs (N, ...) as stored, targets (N,): class numbers int64 or real numbers in their own unit, float64, group (N,): `clean`, `noise-3` …

    The part of a group's name before the dash is its kind: targets name kinds, tables may tell strengths apart.
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    group: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.targets)
