"""How precisely a rate of a finite bank would be known: the variance by which the strategy `precision` plans.

Of the N samples of a cell (a concept and a truth), n were asked about at random without replacement and k answered correctly.
The number of correct answers among the other N - n is

    right ~ BetaBinomial(N - n, a, b),    a = k + 1/2,  b = n - k + 1/2    (Jeffreys' prior),

and the rate (k + right) / N is known exactly once n = N. The intervals that are reported are those of
`confidence_sequences.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def moments(right: Any, asked: Any, of: Any) -> tuple[Floats, Floats]:
    """Return posterior mean and variance of the rates of cells.

    mean = (k + r p) / N, variance = r p (1 - p) (a + b + r) / (a + b + 1) / N^2, with r = N - n and p = a / (a + b).

    Args:
        right: Correct answers k, any shape.
        asked: Samples asked about n, the same shape.
        of: Samples N of the cell, the same shape.

    Returns:
        Mean and variance, each of that shape.

    References:
        Gelman et al., Bayesian Data Analysis, 3rd ed. (2013), sections 2.4 and 8.3.
    """
    k, n, size = (np.asarray(values, np.float64) for values in (right, asked, of))
    total, rest = n + 1, size - n
    p = (k + 0.5) / total
    variance = rest * p * (1 - p) * (total + rest) / (total + 1) / np.maximum(size, 1) ** 2
    return np.asarray((k + rest * p) / np.maximum(size, 1)), np.asarray(variance)
