"""P-values of differences from bootstrap replicates, and their correction for multiple tests.

>>> holm([0.01, 0.04, 0.03]).round(3).tolist()
[0.03, 0.06, 0.06]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.metrics.inference.bootstrap import MAX_UNDEFINED

Floats = NDArray[np.float64]


def holm(p_values: ArrayLike) -> Floats:
    """Return Holm's step-down adjusted p-values, which control the family-wise error under any dependence.

    Sorted p_(1) <= … <= p_(m): adjusted p_(i) = max over j <= i of min(1, (m - j + 1) p_(j)).

    Args:
        p_values: (m,); NaN stays NaN and does not count.

    Returns:
        (m,) adjusted p-values.

    References:
        Holm, A simple sequentially rejective multiple test procedure, Scand. J. Stat. 6:65 (1979).
    """
    p = np.asarray(p_values, np.float64)
    out = np.full(p.shape, np.nan)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    out[order] = np.maximum.accumulate(np.minimum(1.0, factors * p[order]))
    return out


def difference_p_value(draws: ArrayLike) -> float:
    """Return the two-sided p-value of "no difference": p = 2 min(#{d <= 0} + 1, #{d >= 0} + 1) / (R + 1), at most 1.

    Args:
        draws: (R,) replicates of a difference.

    Returns:
        The p-value, at least 2 / (R + 1); NaN if over 5 % of the replicates are undefined.
    """
    values = np.asarray(draws, np.float64)
    known = values[np.isfinite(values)]
    if not len(known) or len(known) < (1 - MAX_UNDEFINED) * len(values):
        return float("nan")
    tail = min(np.count_nonzero(known <= 0), np.count_nonzero(known >= 0)) + 1
    return float(min(1.0, 2 * tail / (len(known) + 1)))
