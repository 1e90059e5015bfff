"""Intervals of sums, differences and odds of proportions, made from the intervals of the proportions themselves.

The method is MOVER (method of variance estimates recovery): the distance of each end of a combination from its value is made
of the distances of the proportions' own ends from theirs. With intervals that hold at 0 and 1, the combination's does too,
where a standard error would be 0.

References:
    Zou, Huang and Zhang, A note on confidence interval estimation for a linear function of binomial proportions, Comput. Stat.
    Data Anal. 53:1080 (2009); Donner and Zou, Closed-form confidence intervals for functions of the normal mean and standard
    deviation, Stat. Methods Med. Res. 21:347 (2012).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize

from retinabench.metrics.inference.bootstrap import cluster_codes
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.inference.proportions import clustered_proportion

Floats = NDArray[np.float64]


def combined_proportions(
    parts: Sequence[tuple[float, ArrayLike]],
    cluster: ArrayLike | Sequence[Hashable],
) -> Interval:
    """Return a linear combination of proportions of the same images, with its clustered 95 % interval.

    With proportions p_k of ends l_k and u_k and correlations r_jk of their patients' residuals, the lower end of sum c_k p_k is
    its value less sqrt(sum_jk s_j s_k r_jk d_j d_k), where d_k = |c_k| (p_k - l_k) and s_k = 1 for c_k > 0, and
    |c_k| (u_k - p_k) and -1 else.

    Args:
        parts: Pairs of a coefficient and (N,) successes in [0, 1].
        cluster: (N,) patients.

    Returns:
        The combination; the ends are NaN where all images are of one patient.
    """
    codes, patients = cluster_codes(cluster)
    share = np.array([np.asarray(success, np.float64) for _, success in parts])
    coefficient = np.array([c for c, _ in parts])
    found = [clustered_proportion(success, np.ones(len(codes)), codes) for success in share]
    value = np.array([one.value for one in found])
    low, high = np.array([(one.value - one.low, one.high - one.value) for one in found]).T
    residual = np.array(
        [np.bincount(codes, success - p, patients) for success, p in zip(share, value, strict=True)]
    )
    correlation = _correlation(residual)
    centre, sign = float(coefficient @ value), np.sign(coefficient)
    ends = []
    for below, above in ((low, high), (high, low)):
        distance = coefficient * np.where(sign > 0, below, above)
        ends.append(
            float(np.sqrt(max(distance @ correlation @ distance, 0.0)))
            if np.isfinite(distance).all()
            else np.nan
        )
    return Interval(centre, centre - ends[0], centre + ends[1])


def difference_of(a: Interval, b: Interval) -> Interval:
    """Return a - b with the interval of two independent proportions (Newcombe's hybrid method)."""
    value = a.value - b.value
    low = value - float(np.hypot(a.value - a.low, b.high - b.value))
    high = value + float(np.hypot(a.high - a.value, b.value - b.low))
    return Interval(value, max(low, -1.0), min(high, 1.0))


def share_of_two(a: Interval, b: Interval, weight_a: float, weight_b: float) -> Interval:
    """Return weight_a a / (weight_a a + weight_b b) of two independent proportions.

    A share v lies in the interval where the interval of (1 - v) weight_a a - v weight_b b holds 0.

    Args:
        a: A proportion.
        b: Another.
        weight_a: Above 0.
        weight_b: Above 0.

    Returns:
        The share in [0, 1]; NaN where both proportions are 0.
    """
    up, down = weight_a * a.value, weight_b * b.value
    value = up / (up + down) if up + down > 0 else np.nan

    def end(distance_a: float, distance_b: float, sign: int) -> float:
        """The root in v of the lower (sign -1) or upper end of (1 - v) up - v down."""

        def of(v: float) -> float:
            return (
                (1 - v) * up
                - v * down
                + sign * float(np.hypot((1 - v) * weight_a * distance_a, v * weight_b * distance_b))
            )

        if sign > 0 and of(1.0) >= 0:
            return 1.0
        if sign < 0 and of(0.0) <= 0:
            return 0.0
        return float(optimize.brentq(of, 0.0, 1.0))

    if not np.isfinite([value, a.low, a.high, b.low, b.high]).all():
        return Interval(value)
    low = end(a.value - a.low, b.high - b.value, -1)
    high = end(a.high - a.value, b.value - b.low, +1)
    return Interval(value, min(low, value), max(high, value))


def _correlation(residual: Floats) -> Floats:
    """(K, K) correlation of rows; 0 beside the diagonal where a row does not vary."""
    product = residual @ residual.T
    scale = np.sqrt(np.diag(product))
    scale = np.where(scale > 0, scale, np.inf)
    return np.asarray(np.where(np.eye(len(scale)) > 0, 1.0, product / np.outer(scale, scale)))
