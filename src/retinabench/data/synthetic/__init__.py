"""Synthetic fundus photographs with known truth: the data card."""

from retinabench.data.synthetic.fundus import Fundus, draw
from retinabench.data.synthetic.truth import (
    CONFUSION,
    FELLOW_EYE_CORRELATION,
    GRADE_MIX,
    LESIONS,
    Irreducible,
    Truth,
    irreducible,
    truth,
)

__all__ = [
    "CONFUSION",
    "FELLOW_EYE_CORRELATION",
    "GRADE_MIX",
    "LESIONS",
    "Fundus",
    "Irreducible",
    "Truth",
    "draw",
    "irreducible",
    "truth",
]
