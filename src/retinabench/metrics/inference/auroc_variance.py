"""The standard error of an AUROC in closed form: DeLong for independent images, Obuchowski for patients.

Both rest on the placement values of every image: the share of the other class that it is ranked rightly against.

    >>> auroc_error([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).auroc
    0.75
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.inference.bootstrap import cluster_codes

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AurocError:
    """An AUROC (or a difference of two), its standard error and the normal interval cut at its range."""

    auroc: float
    standard_error: float
    difference: bool = False

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """auroc -+ z standard errors, cut to [0, 1] (a difference: to [-1, 1]); NaN where undefined."""
        half = float(stats.norm.ppf((1 + level) / 2)) * self.standard_error
        lowest = -1.0 if self.difference else 0.0
        low, high = np.clip([self.auroc - half, self.auroc + half], lowest, 1.0)
        return float(low), float(high)

    @property
    def p_value(self) -> float:
        """Two-sided p-value of "AUROC = 1/2", or of "no difference"."""
        null = 0.0 if self.difference else 0.5
        distance = abs(self.auroc - null)
        if self.standard_error == 0:
            return 1.0 if distance == 0 else 0.0
        return float(2 * stats.norm.sf(distance / self.standard_error))


def auroc_error(
    label: ArrayLike, score: ArrayLike, cluster: ArrayLike | Sequence[Hashable] | None = None
) -> AurocError:
    """Return the AUROC with its closed-form standard error.

    With m positives X and n negatives Y, V10_i = mean_j psi(X_i, Y_j), V01_j = mean_i psi(X_i, Y_j) and psi = 1, 1/2, 0 for
    above, equal, below. Without clusters (DeLong) var = S10/m + S01/n with S10, S01 the variances (one ddof) of V10 and V01.
    With clusters (Obuchowski), sums V10_i., V01_i. over the m_i positives and n_i negatives of patient i, I patients, I10 of
    them with a positive, I01 with a negative, and A the AUROC:

        S10 = I10 / ((I10 - 1) m) sum (V10_i. - m_i A)^2     S01 = I01 / ((I01 - 1) n) sum (V01_i. - n_i A)^2
        S11 = I / (I - 1) sum (V10_i. - m_i A)(V01_i. - n_i A)     var = S10/m + S01/n + 2 S11/(m n)

    Args:
        label: (N,) 0 or 1.
        score: (N,), higher means positive; ties count half.
        cluster: (N,) patients; None: independent images.

    Returns:
        AUROC and standard error; NaN where one class is absent, the error also where a class comes from one patient only.

    References:
        DeLong, DeLong and Clarke-Pearson, Biometrics 44:837 (1988); Obuchowski, Biometrics 53:567 (1997).
    """
    y = _labels(label)
    return _error(y, _placements(y, _scores(score, len(y))), cluster, difference=False)


def auroc_difference(
    label: ArrayLike,
    score_a: ArrayLike,
    score_b: ArrayLike,
    cluster: ArrayLike | Sequence[Hashable] | None = None,
) -> AurocError:
    """Return the difference of two AUROCs on the same images, with the standard error of the paired difference.

    Placement values are linear in the AUROC, hence `auroc_error` of their differences: the covariance is in them.

    Args:
        label: (N,) 0 or 1.
        score_a: (N,) scores of the first model.
        score_b: (N,) scores of the second model.
        cluster: (N,) patients; None: independent images.

    Returns:
        AUROC of the first minus that of the second, and its standard error.
    """
    y = _labels(label)
    a, b = (_placements(y, _scores(score, len(y))) for score in (score_a, score_b))
    return _error(y, a - b, cluster, difference=True)


def _error(
    y: NDArray[np.bool_],
    placement: Floats,
    cluster: ArrayLike | Sequence[Hashable] | None,
    *,
    difference: bool,
) -> AurocError:
    m, n = int(y.sum()), int((~y).sum())
    if m == 0 or n == 0:
        return AurocError(float("nan"), float("nan"), difference)
    codes, patients = cluster_codes(np.arange(len(y)) if cluster is None else cluster)
    if len(codes) != len(y):
        raise InputError(f"{len(codes)} cluster ids for {len(y)} labels")
    auroc = float(placement[y].mean())
    # Deviation of each patient's summed placements from what the AUROC predicts, by class.
    of_positives = np.bincount(codes, np.where(y, placement - auroc, 0.0), patients)
    of_negatives = np.bincount(codes, np.where(y, 0.0, placement - auroc), patients)
    with_positive, with_negative = len(np.unique(codes[y])), len(np.unique(codes[~y]))
    if with_positive < 2 or with_negative < 2:
        return AurocError(auroc, float("nan"), difference)
    s10 = with_positive / ((with_positive - 1) * m) * float(of_positives @ of_positives)
    s01 = with_negative / ((with_negative - 1) * n) * float(of_negatives @ of_negatives)
    s11 = patients / (patients - 1) * float(of_positives @ of_negatives)
    variance = s10 / m + s01 / n + 2 * s11 / (m * n)
    return AurocError(auroc, float(np.sqrt(max(variance, 0.0))), difference)


def _placements(y: NDArray[np.bool_], score: Floats) -> Floats:
    """(N,) share of the other class against which each image is ranked rightly, ties counted half."""
    positive, negative = np.sort(score[y]), np.sort(score[~y])
    out = np.empty(len(y))
    if len(positive) and len(negative):
        x = score[y]
        below = np.searchsorted(negative, x, "left") + np.searchsorted(negative, x, "right")
        out[y] = below / (2 * len(negative))
        x = score[~y]
        above = np.searchsorted(positive, x, "left") + np.searchsorted(positive, x, "right")
        out[~y] = 1 - above / (2 * len(positive))
    return out


def _labels(label: ArrayLike) -> NDArray[np.bool_]:
    y = np.asarray(label)
    if y.ndim != 1 or not np.isin(y, (0, 1)).all():
        raise InputError("the labels must be (N,) zeros and ones", column="label")
    return y.astype(bool)


def _scores(score: ArrayLike, n: int) -> Floats:
    values = np.asarray(score, np.float64)
    if values.shape != (n,) or not np.isfinite(values).all():
        raise InputError(f"needed are {n} finite numbers, one per label", column="score")
    return values
