"""P-values by exchanging two models, and the correction of p-values for multiple tests.

>>> holm([0.01, 0.04, 0.03]).round(3).tolist()
[0.03, 0.06, 0.06]
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

Floats = NDArray[np.float64]
MOST_EXACT = 4000  # the convolution takes less than a tenth of a second


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


def sign_flip_p_value(differences: ArrayLike) -> float:
    """Return the two-sided p-value of "no difference" from the difference in each patient, by exchanging the models.

    If the models do not differ, each difference could as well have the other sign: p is the share of all 2^G signs under which the
    absolute sum is at least as large. With one image per patient and differences of 0 and +-1 it is McNemar's exact test. The
    distribution of whole differences is exact, by convolution over their sizes; where they are not whole, or their absolute sum
    is above 4,000, it is the normal one of the same variance.

    Args:
        differences: (G,) sum over each patient's images of correct predictions of the first model less those of the second.

    Returns:
        The p-value; 1 where no patient differs.

    References:
        Fisher, The design of experiments (1935), section 21; McNemar, Psychometrika 12:153 (1947).
    """
    d = np.asarray(differences, np.float64)
    d = d[d != 0]
    found = abs(float(d.sum()))
    if not len(d) or found == 0:
        return 1.0
    if not (d == np.round(d)).all() or np.abs(d).sum() > MOST_EXACT:
        return float(min(1.0, 2 * stats.norm.sf(found / np.sqrt(d @ d))))
    sizes, counts = np.unique(np.abs(d).astype(np.intp), return_counts=True)
    chance = np.ones(1)  # of each number of the sum's steps of 1 above its least
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        steps = np.zeros(2 * size * count + 1)
        steps[:: 2 * size] = stats.binom.pmf(np.arange(count + 1), count, 0.5)
        chance = np.convolve(chance, steps)
    total = int(np.abs(d).sum())
    return float(min(1.0, chance[np.abs(np.arange(-total, total + 1)) >= found].sum()))
