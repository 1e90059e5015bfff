"""Intervals of a proportion: of independent trials (Wilson, Clopper-Pearson), and of images of shared patients."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.inference.bootstrap import cluster_codes

Floats = NDArray[np.float64]


def wilson(successes: ArrayLike, trials: ArrayLike, level: float = 0.95) -> tuple[Any, Any]:
    """Return the Wilson score interval of a proportion, for independent trials.

    With p = k/n and z = Phi^-1((1+level)/2): (p + z^2/2n -+ z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n). Close to nominal on
    average, may fall below it for some p.

    Args:
        successes: k, of any shape.
        trials: n, of the same shape.
        level: Level of the interval.

    Returns:
        (low, high); NaN where there are no trials.

    References:
        Wilson, Probable inference, the law of succession, and statistical inference, J. Am. Stat. Assoc. 22:209 (1927).
    """
    k, n = _counts(successes, trials)
    z = stats.norm.ppf((1 + level) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = k / n
        centre, half = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
        low, high = (centre - half) / (1 + z**2 / n), (centre + half) / (1 + z**2 / n)
    # At k = 0 and k = n the ends are 0 and 1 exactly; rounding would miss them by 1e-17.
    return np.where(k == 0, 0.0 * low, low)[()], np.where(k == n, 1.0 + 0.0 * high, high)[()]


def clopper_pearson(successes: ArrayLike, trials: ArrayLike, level: float = 0.95) -> tuple[Any, Any]:
    """Return the Clopper-Pearson interval of a proportion, which covers at least `level` for independent trials.

    low = Beta^-1((1-level)/2; k, n-k+1), high = Beta^-1((1+level)/2; k+1, n-k). Usual in regulation; wider than needed on
    average.

    Args:
        successes: k, of any shape.
        trials: n, of the same shape.
        level: Level of the interval.

    Returns:
        (low, high); NaN where there are no trials.

    References:
        Clopper and Pearson, The use of confidence or fiducial limits illustrated in the case of the binomial, Biometrika
        26:404 (1934).
    """
    k, n = _counts(successes, trials)
    tail = (1 - level) / 2
    low = np.where(k == 0, 0.0, stats.beta.ppf(tail, np.maximum(k, 1), n - k + 1))
    high = np.where(k == n, 1.0, stats.beta.ppf(1 - tail, k + 1, np.maximum(n - k, 1)))
    return np.where(n > 0, low, np.nan)[()], np.where(n > 0, high, np.nan)[()]


def clustered_proportion(
    success: ArrayLike,
    eligible: ArrayLike,
    cluster: ArrayLike | Sequence[Hashable],
    level: float = 0.95,
) -> tuple[float, float, float]:
    """Return the proportion of successes among eligible images, with an exact-type interval for clustered images.

    The Clopper-Pearson limits at the effective sample size n / max(1, design effect), with the linearised variance of the
    ratio p = sum y_i / sum m_i over G patients, G/(G-1) sum (y_i - p m_i)^2 / (sum m_i)^2, and t in place of z degrees of
    freedom (G - 1). Where p is 0 or 1 the data hold no variance: the effective size is then the number of patients, as if
    their images were copies.

    Args:
        success: (N,) bool.
        eligible: (N,) bool.
        cluster: (N,) patients.
        level: Level of the interval.

    Returns:
        (value, low, high); NaN where no image is eligible.

    References:
        Korn and Graubard, Confidence intervals for proportions with small expected number of positive counts estimated from
        survey data, Survey Methodology 24:193 (1998).
    """
    codes, _ = cluster_codes(cluster)
    hit, of = binary(success, "success"), binary(eligible, "eligible")
    n = int(of.sum())
    if n == 0:
        return float("nan"), float("nan"), float("nan")
    p = float((hit & of).sum()) / n
    patients = len(np.unique(codes[of]))
    effective = float(patients)
    if 0 < p < 1 and patients > 1:
        residual = np.bincount(codes[of], hit[of] - p)
        variance = patients / (patients - 1) * float(residual @ residual) / n**2
        t, z = stats.t.ppf((1 + level) / 2, patients - 1), stats.norm.ppf((1 + level) / 2)
        effective = min(float(n), p * (1 - p) / variance) * float(z / t) ** 2 if variance > 0 else float(n)
    low, high = clopper_pearson(p * effective, effective, level)
    return p, float(low), float(high)


def binary(values: ArrayLike, name: str) -> NDArray[np.bool_]:
    """(N,) bool of zeros and ones; anything else raises `InputError`."""
    array = np.asarray(values)
    if array.ndim != 1 or not np.isin(array, (0, 1)).all():
        raise InputError("must be (N,) zeros and ones", column=name)
    return array.astype(bool)


def _counts(successes: ArrayLike, trials: ArrayLike) -> tuple[Floats, Floats]:
    k, n = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(trials, np.float64))
    if np.any(k < 0) or np.any(k > n):
        raise InputError("a count of successes lies outside 0 … trials")
    return k, n
