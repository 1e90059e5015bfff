"""What pictures are sorted by: their grades, or their labels where no grade is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.data.prepared import Prepared

GRADES = ("no retinopathy", "mild", "moderate", "severe", "proliferative")
LABELS = ("not referable", "referable")


@dataclass(frozen=True, eq=False)
class Classes:
    """noun: `grade` or `label`. names: what each class is called. of_row: (N,) the class of each record."""

    noun: str
    names: tuple[str, ...]
    of_row: NDArray[np.int8]


def classes_of(data: Prepared) -> Classes:
    """Return the grades; or the labels, where the records hold stand-ins for grades."""
    if data.graded:
        return Classes("grade", GRADES, data.records.grade)
    return Classes("label", LABELS, data.label)
