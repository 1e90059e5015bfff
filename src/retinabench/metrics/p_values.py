"""P-values of differences: by Student's t, by exchanging two models, and adjusted for how many differences are tested."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from retinabench.metrics.weighted_images import Floats

FEWEST_DRAWS = 200  # replicates that tell how differences depend on each other
MOST_EXACT = 4000  # the convolution takes less than a tenth of a second


def t_test(difference: float, error: float, degrees: float) -> float:
    """Return the two-sided p-value of "no difference" from a standard error, by Student's t distribution."""
    if difference == 0:
        return 1.0
    if not error > 0 or degrees < 1:
        return math.nan
    return float(2 * special.stdtr(degrees, -abs(difference) / error))


def holm(p_values: ArrayLike) -> Floats:
    """Return Holm's step-down adjusted p-values, which control the family-wise error under any dependence.

    Sorted p_(1) <= … <= p_(m): adjusted p_(i) = max over j <= i of min(1, (m - j + 1) p_(j)).

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


def min_p(p_values: ArrayLike, draws: ArrayLike) -> Floats:
    """Return Westfall and Young's step-down adjusted p-values (K,) of K differences whose replicates are `draws` (R, K).

    Scores that say the same thing thrice are one test, not three. The replicates of each difference about their mean, which stand for those under
    "no difference", have p-values of their own: their ranks by distance, over R. With p_(1) <= ... <= p_(K):

        adjusted p_(i) = max over j <= i of P(least replicate p-value of the differences j ... K <= p_(j))

    Below 5 / R the ratio to the p-value is that at 5 / R, so that no number of replicates bounds it from below. Holm's correction where there are
    fewer than `FEWEST_DRAWS` replicates.

    References:
        Westfall and Young, Resampling-based multiple testing (1993), algorithm 2.8; Ge, Dudoit and Speed, Resampling-based
        multiple testing for microarray data analysis, TEST 12:1 (2003).
    """
    p, values = np.asarray(p_values, np.float64), np.asarray(draws, np.float64)
    known = np.flatnonzero(np.isfinite(p))
    if len(values) < FEWEST_DRAWS or len(known) < 2:
        return holm(p)
    order = known[np.argsort(-p[known], kind="stable")]
    least, out, smallest = np.ones(len(values)), np.full(p.shape, np.nan), 5 / len(values)
    for k in order:  # from the largest p-value to the smallest one
        column = values[:, k]
        defined = np.isfinite(column)
        distance = np.where(defined, np.abs(column - column[defined].mean() if defined.any() else 0.0), 0.0)
        least = np.minimum(least, np.searchsorted(np.sort(-distance), -distance, "right") / len(values))
        at = max(float(p[k]), smallest)
        out[k] = min(1.0, max(p[k], float(np.mean(least <= at)) * p[k] / at))
    ascending = order[::-1]
    out[ascending] = np.maximum.accumulate(out[ascending])
    return out


def sign_flip_p_value(differences: ArrayLike) -> float:
    """Return the two-sided p-value of "no difference" from the difference in each patient, by exchanging the models.

    If the models do not differ, each difference could as well have the other sign: p is the share of all 2^G signs under which the
    absolute sum is at least as large. With one image per patient and differences of 0 and +-1 it is McNemar's exact test. The
    distribution of whole differences is exact, by convolution over their sizes; where they are not whole, or their absolute sum
    is above 4,000, it is the normal one of the same variance.

    References:
        Fisher, The design of experiments (1935), section 21; McNemar, Psychometrika 12:153 (1947).
    """
    d = np.asarray(differences, np.float64)
    d = d[d != 0]
    found = abs(float(d.sum()))
    if not len(d) or found == 0:
        return 1.0
    if not (d == np.round(d)).all() or np.abs(d).sum() > MOST_EXACT:
        return float(min(1.0, 2 * special.ndtr(-found / np.sqrt(d @ d))))
    sizes, counts = np.unique(np.abs(d).astype(np.intp), return_counts=True)
    chance = np.ones(1)  # of each number of the sum's steps of 1 above its least
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        steps = np.zeros(2 * size * count + 1)
        half = np.arange(count // 2, count)  # from the middle out: each binomial chance is a multiple of the one before
        upper = np.cumprod(np.append(1.0, (count - half) / (half + 1)))
        chances = np.concatenate([upper[:0:-1], upper[count % 2 :]])
        steps[:: 2 * size] = chances / chances.sum()
        chance = np.convolve(chance, steps)
    total = int(np.abs(d).sum())
    return float(min(1.0, chance[np.abs(np.arange(-total, total + 1)) >= found].sum()))
