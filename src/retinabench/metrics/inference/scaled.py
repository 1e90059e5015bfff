"""Intervals from a standard error, on a scale on which a score is nearly normal.

A score with a bound at 0 or 1 is skewed near it: its percentile intervals miss the truth on the far side, up to four times
too often with 100 patients. On the logit or the logarithmic scale its distribution is nearly normal, and no end of an
interval lies beyond the bound.

    >>> low, high = scaled_interval(0.98, 0.01, (0.0, 1.0), degrees=99)
    >>> round(low, 3), round(high, 3)
    (0.947, 0.993)
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from retinabench.metrics.inference.bootstrap import MAX_UNDEFINED

Bounds = tuple[float, float]
ROUNDING = 1e-12  # replicates that differ by less are equal: an area of ones is 1 only up to rounding


def scaled_interval(
    value: float, error: float, bounds: Bounds, degrees: float, level: float = 0.95
) -> tuple[float, float]:
    """Return the t interval of a score on the scale that its bounds ask for.

    With bounds a and b the scale is ln((x - a) / (b - x)), with a alone ln(x - a), with b alone -ln(b - x), with none x itself.
    The standard error there follows by the derivative of the scale (the delta method). A value on or beyond a bound has the
    scale x.

    Args:
        value: The score.
        error: Its standard error.
        bounds: Its least and its largest value; infinite where there is none.
        degrees: Degrees of freedom of the standard error.
        level: Level of the interval.

    Returns:
        The ends; NaN where the standard error is 0 or undefined.
    """
    if not error > 0 or not math.isfinite(value) or degrees < 1:
        return math.nan, math.nan
    half = float(stats.t.ppf((1 + level) / 2, degrees)) * error
    above, below = value - bounds[0], bounds[1] - value
    if not (above > 0 and below > 0) or above == below == math.inf:
        return max(value - half, bounds[0]), min(value + half, bounds[1])
    ends = []
    for side in (-half, half):
        if below == math.inf:
            ends.append(bounds[0] + above * math.exp(min(side / above, 700.0)))
        elif above == math.inf:
            ends.append(bounds[1] - below * math.exp(min(-side / below, 700.0)))
        else:
            odds = math.log(above / below) + side * (1 / above + 1 / below)
            ends.append(bounds[0] + (above + below) / (1 + math.exp(min(-odds, 700.0))))
    return ends[0], ends[1]


def replicate_error(draws: ArrayLike) -> float:
    """Return the standard deviation of the replicates of one score; NaN if over 5 % of them are undefined.

    Args:
        draws: (R,) of `cluster_bootstrap`.

    Returns:
        The standard error of the score, 0 where all replicates are equal.
    """
    values = np.asarray(draws, np.float64)
    known = values[np.isfinite(values)]
    if len(known) < 2 or len(known) < (1 - MAX_UNDEFINED) * len(values):
        return math.nan
    equal = np.ptp(known) <= ROUNDING * max(1.0, float(np.abs(known).max()))
    return 0.0 if equal else float(known.std(ddof=1))


def t_test(difference: float, error: float, degrees: float) -> float:
    """Return the two-sided p-value of "no difference" from a standard error, by Student's t distribution.

    A parametric tail has no least value: that of counted replicates is 2 / (R + 1), and Holm's correction of many tests then
    rejects nothing.

    Args:
        difference: The estimate.
        error: Its standard error.
        degrees: Degrees of freedom of the standard error.

    Returns:
        The p-value; 1 for no difference at all, else NaN where the standard error is 0 or undefined.
    """
    if difference == 0:
        return 1.0
    if not error > 0 or degrees < 1:
        return math.nan
    return float(2 * stats.t.sf(abs(difference) / error, degrees))
