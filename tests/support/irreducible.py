"""The scores that no model of the synthetic images can beat, from their confusion matrix and grades."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from retinabench.data.synthetic.fundus import CONFUSION, GRADE_MIX
from retinabench.data.synthetic.streams import Population


class Irreducible(NamedTuple):
    """Scores of the perfect reader of the full-resolution image against reported labels."""

    error: float
    nll: float


def irreducible(population: Population) -> Irreducible:
    """Return the Bayes error and the Bayes negative log-likelihood (nats) of the label referable.

    With w_g = GRADE_MIX[population][g] and p_g = CONFUSION[g, 2:].sum():
    error = sum_g w_g min(p_g, 1 - p_g), nll = -sum_g w_g (p_g log p_g + (1 - p_g) log(1 - p_g)).
    No model can do better in expectation, and one that sees the image small or blurred does worse.
    """
    weights = GRADE_MIX[population]
    p = CONFUSION[:, 2:].sum(1)
    error = float(weights @ np.minimum(p, 1 - p))
    nll = float(-weights @ (p * np.log(p) + (1 - p) * np.log1p(-p)))
    return Irreducible(error, nll)
