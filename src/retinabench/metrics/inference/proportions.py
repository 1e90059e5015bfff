"""Intervals of a proportion: of independent trials (Wilson, Clopper-Pearson), and of images of shared patients."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.inference.bootstrap import cluster_codes
from retinabench.metrics.inference.interval import Interval

Floats = NDArray[np.float64]
PRIOR_PATIENTS = 2.0  # weight of the design effect of copied images: 93 to 97 % also for few errors and many images a patient


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
    low = np.where(k == 0, 0.0, stats.beta.ppf(tail, np.where(k == 0, 1, k), n - k + 1))
    high = np.where(k == n, 1.0, stats.beta.ppf(1 - tail, k + 1, np.where(k == n, 1, n - k)))
    return np.where(n > 0, low, np.nan)[()], np.where(n > 0, high, np.nan)[()]


def jeffreys(successes: ArrayLike, trials: ArrayLike, level: float = 0.95) -> tuple[Any, Any]:
    """Return the modified Jeffreys interval of a proportion, which covers `level` on average over p.

    low = Beta^-1((1-level)/2; k + 1/2, n-k + 1/2), high = Beta^-1((1+level)/2; k + 1/2, n-k + 1/2). At k = 0 and k = n the ends
    are those of Clopper and Pearson. Neither k nor n has to be whole, which an effective number of trials never is.

    Args:
        successes: k, of any shape.
        trials: n, of the same shape.
        level: Level of the interval.

    Returns:
        (low, high); NaN where there are no trials.

    References:
        Brown, Cai and DasGupta, Interval estimation for a binomial proportion, Stat. Sci. 16:101 (2001), section 4.1.
    """
    k, n = _counts(successes, trials)
    tail = (1 - level) / 2
    exact_low, exact_high = clopper_pearson(k, n, level)
    with np.errstate(invalid="ignore"):
        # With less than one trial the quantiles can leave out k/n itself.
        low = np.minimum(stats.beta.ppf(tail, k + 0.5, n - k + 0.5), k / n)
        high = np.maximum(stats.beta.ppf(1 - tail, k + 0.5, n - k + 0.5), k / n)
    edge = (k == 0) | (k == n)
    return np.where(edge, exact_low, low)[()], np.where(edge, exact_high, high)[()]


def clustered_proportion(
    success: ArrayLike,
    weight: ArrayLike,
    cluster: ArrayLike | Sequence[Hashable],
    level: float = 0.95,
    *,
    exact: bool = False,
    variance: float = 0.0,
) -> Interval:
    """Return the proportion of successes among weighted images, with an interval for images of shared patients.

    The interval is `jeffreys` at an effective number of images, as Korn and Graubard's is Clopper and Pearson's. With
    p = sum w_i y_i / sum w_i and the residual r_g = sum w_i (y_i - p) of each of G patients, the linearised variance is
    v = G/(G-1) sum r_g^2 / (sum w_i)^2, and the effective number of images p (1-p) / v, at most that of independent images,
    (sum w_i)^2 / sum w_i^2.

    Few errors say little about how they cluster, and v is then too small: the design effect is averaged with that of images
    that are copies of each other, which counts as `PRIOR_PATIENTS` patients, the found one as the patients with a success or
    those with a failure, whichever are fewer. With t in place of z, at G - 1 degrees of freedom, the effective number falls by
    (z / t)^2. At p = 0 or 1 the end is exact for copied images, and no record with an error has a better bound.

    Args:
        success: (N,) in [0, 1]; a share where it is a mean, such as that over several seeds.
        weight: (N,) >= 0, what each image counts for; 0 or False leaves it out.
        cluster: (N,) patients.
        level: Level of the interval.
        exact: Whether to take the interval of Clopper and Pearson at the effective number, for a decision that must not be
            wrong more often than stated; it is wider.
        variance: Of the proportion, in place of v where it is larger: which images count may itself depend on the sample.

    Returns:
        The proportion with its interval; NaN where no image counts, the ends also where all that count are of one patient.

    References:
        Korn and Graubard, Confidence intervals for proportions with small expected number of positive counts estimated from
        survey data, Survey Methodology 24:193 (1998). Franco, Little, Louis and Slud, Comparative study of confidence intervals
        for proportions in complex sample surveys, J. Surv. Stat. Methodol. 7:334 (2019), where Jeffreys' covers best.
    """
    codes, _ = cluster_codes(cluster)
    y, w = np.asarray(success, np.float64), np.asarray(weight, np.float64)
    if not y.shape == w.shape == codes.shape:
        raise InputError(f"{len(y)} successes, {len(w)} weights and {len(codes)} patients")
    if not ((y >= 0) & (y <= 1)).all() or not (np.isfinite(w) & (w >= 0)).all():
        raise InputError("successes must lie between 0 and 1, weights must be finite and at least 0")
    counted = w > 0
    y, w = y[counted], w[counted]
    codes = np.unique(codes[counted], return_inverse=True)[1]
    if not len(y):
        return Interval(np.nan)
    p = 0.0 if not y.any() else 1.0 if (y == 1).all() else float(w @ y / w.sum())
    if codes.max() == 0:
        return Interval(p)
    of_patient = np.bincount(codes, w)
    copies = float(w.sum()) ** 2 / float(of_patient @ of_patient)
    perfect = float(clopper_pearson(copies, copies, level)[0])
    if not 0 < p < 1:
        return Interval(p, perfect if p else 0.0, 1.0 if p else 1 - perfect)
    effective = effective_images(y, w, codes, level, variance)
    low, high = (clopper_pearson if exact else jeffreys)(p * effective, effective, level)
    return Interval(p, min(p, perfect, float(low)), max(p, 1 - perfect, float(high)))


def effective_images(
    success: Floats, weight: Floats, codes: NDArray[np.intp], level: float, variance: float = 0.0
) -> float:
    """Return the number of independent images that would know a proportion as well as these do.

    Args:
        success: (N,) in [0, 1].
        weight: (N,) > 0.
        codes: (N,) number of the patient of each image, each number from 0 on at least once.
        level: Level of the two-sided interval, or of twice a one-sided test, for which it is used.
        variance: See `clustered_proportion`, which says how it is computed.

    Returns:
        The effective number; it need not be whole.
    """
    y, w, total = success, weight, float(weight.sum())
    p = float(w @ y) / total
    of_patient = np.bincount(codes, w)
    patients = len(of_patient)
    alone, copies = total**2 / float(w @ w), total**2 / float(of_patient @ of_patient)
    if not 0 < p < 1:
        return copies
    residual = np.bincount(codes, w * (y - p))
    linear = patients / (patients - 1) * float(residual @ residual) / total**2 if patients < len(y) else 0.0
    found = max(linear, variance, p * (1 - p) / alone)
    seen = min(np.count_nonzero(np.bincount(codes, side)) for side in (y, 1 - y))
    inverse = (seen * found / (p * (1 - p)) + PRIOR_PATIENTS / copies) / (seen + PRIOR_PATIENTS)
    if patients == len(y):  # images of different patients are independent: their variance was not estimated
        return float(1 / inverse)
    t, z = stats.t.ppf((1 + level) / 2, patients - 1), stats.norm.ppf((1 + level) / 2)
    return float((z / t) ** 2 / inverse)


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
