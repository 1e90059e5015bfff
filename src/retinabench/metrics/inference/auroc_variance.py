"""The standard error of an AUROC in closed form: DeLong for independent images, Obuchowski for patients.

Both are computed from the placement value of every image: the share of the other class against which it is ranked rightly.

    >>> auroc_error([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8]).auroc
    0.75
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.inference.bootstrap import cluster_codes
from retinabench.metrics.inference.proportions import clopper_pearson
from retinabench.metrics.inference.scaled import scaled_interval, t_test

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AurocError:
    """An AUROC (or a difference of two) with its standard error.

    Args:
        auroc: The AUROC, or the difference.
        standard_error: Its standard error; NaN where undefined.
        difference: Whether it is a difference.
        degrees: Degrees of freedom of the standard error, by Satterthwaite from the patients of each class.
        patients: Number of patients with images of the rarer class.
    """

    auroc: float
    standard_error: float
    difference: bool = False
    degrees: float = np.inf
    patients: int = 0

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Student's t interval: of an AUROC on the logit scale (`area_interval`), of a difference cut to [-1, 1].

        NaN where the error is undefined, or that of a difference 0.
        """
        if not self.difference:
            return area_interval(self.auroc, self.standard_error, self.degrees, self.patients, level)
        bounds = -np.inf, np.inf
        low, high = scaled_interval(self.auroc, self.standard_error, bounds, self.degrees, level)
        return (max(low, -1.0), min(high, 1.0)) if low <= high else (low, high)

    @property
    def p_value(self) -> float:
        """Two-sided p-value of "AUROC = 1/2", or of "no difference", by Student's t distribution."""
        return t_test(self.auroc - (0.0 if self.difference else 0.5), self.standard_error, self.degrees)


def area_interval(
    auroc: float, standard_error: float, degrees: float, patients: int, level: float = 0.95
) -> tuple[float, float]:
    """Return Student's t interval of an AUROC on the logit scale, with an exact bound for a perfect record.

    At 0 and 1 there is no standard error. The AUROC is the mean over one class of a share in [0, 1]: where it is 1 in every
    patient, the bound is the exact one of as many successes as the rarer class has patients.

    Args:
        auroc: The AUROC.
        standard_error: Its standard error.
        degrees: Degrees of freedom of the standard error.
        patients: Number of patients with images of the rarer class.
        level: Level of the interval.

    Returns:
        The ends; NaN where the standard error is undefined.
    """
    if not np.isfinite(standard_error):
        return float("nan"), float("nan")
    if standard_error > 0 and 0 < auroc < 1:
        return scaled_interval(auroc, standard_error, (0.0, 1.0), degrees, level)
    perfect = float(clopper_pearson(patients, patients, level)[0])
    if auroc in (0, 1):
        return (perfect, 1.0) if auroc == 1 else (0.0, 1 - perfect)
    return 0.0, 1.0  # every patient has the same share of right comparisons: nothing is known of others


def auroc_error(
    label: ArrayLike,
    score: ArrayLike,
    cluster: ArrayLike | Sequence[Hashable] | None = None,
    weight: ArrayLike | None = None,
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
        weight: (N,) images that each row stands for, >= 0; None: 1 each. Counts above are then sums of weights.

    Returns:
        AUROC and standard error; NaN where one class is absent, the error also where a class comes from one patient only.

    References:
        DeLong, DeLong and Clarke-Pearson, Biometrics 44:837 (1988); Obuchowski, Biometrics 53:567 (1997).
    """
    y = _labels(label)
    w = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    return _error(y, _placements(y, _scores(score, len(y)), w), cluster, w, difference=False)


def auroc_difference(
    label: ArrayLike,
    score_a: ArrayLike,
    score_b: ArrayLike,
    cluster: ArrayLike | Sequence[Hashable] | None = None,
    weight: ArrayLike | None = None,
) -> AurocError:
    """Return the difference of two AUROCs on the same images, with the standard error of the paired difference.

    Placement values are linear in the AUROC, hence `auroc_error` of their differences: the covariance is in them.

    Args:
        label: (N,) 0 or 1.
        score_a: (N,) scores of the first model.
        score_b: (N,) scores of the second model.
        cluster: (N,) patients; None: independent images.
        weight: (N,) images that each row stands for, >= 0; None: 1 each.

    Returns:
        AUROC of the first minus that of the second, and its standard error.
    """
    y = _labels(label)
    w = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    a, b = (_placements(y, _scores(score, len(y)), w) for score in (score_a, score_b))
    return _error(y, a - b, cluster, w, difference=True)


def _error(
    y: NDArray[np.bool_],
    placement: Floats,
    cluster: ArrayLike | Sequence[Hashable] | None,
    weight: Floats,
    *,
    difference: bool,
) -> AurocError:
    m, n = float(weight[y].sum()), float(weight[~y].sum())
    if m == 0 or n == 0:
        return AurocError(float("nan"), float("nan"), difference)
    codes, patients = cluster_codes(np.arange(len(y)) if cluster is None else cluster)
    if len(codes) != len(y):
        raise InputError(f"{len(codes)} cluster ids for {len(y)} labels")
    auroc = float(weight[y] @ placement[y]) / m
    # Deviation of each patient's summed placements from what the AUROC predicts, by class.
    deviation = weight * (placement - auroc)
    of_positives = np.bincount(codes, np.where(y, deviation, 0.0), patients)
    of_negatives = np.bincount(codes, np.where(y, 0.0, deviation), patients)
    held = weight > 0
    with_positive, with_negative = len(np.unique(codes[held & y])), len(np.unique(codes[held & ~y]))
    if with_positive < 2 or with_negative < 2:
        return AurocError(auroc, float("nan"), difference)
    known = len(np.unique(codes[held]))
    v10 = with_positive / (with_positive - 1) * float(of_positives @ of_positives) / m**2
    v01 = with_negative / (with_negative - 1) * float(of_negatives @ of_negatives) / n**2
    v11 = known / (known - 1) * float(of_positives @ of_negatives) / (m * n)
    noise = v10**2 / (with_positive - 1) + v01**2 / (with_negative - 1)
    degrees = (v10 + v01) ** 2 / noise if noise > 0 else min(with_positive, with_negative) - 1.0
    error = float(np.sqrt(max(v10 + v01 + 2 * v11, 0.0)))
    return AurocError(auroc, error, difference, degrees, min(with_positive, with_negative))


def _placements(y: NDArray[np.bool_], score: Floats, weight: Floats) -> Floats:
    """(N,) share of the other class's weight against which each image is ranked rightly, ties counted half."""
    out = np.empty(len(y))
    for side, sign in ((y, 1), (~y, -1)):
        order = np.argsort(sign * score[~side], kind="stable")
        other, mass = (sign * score[~side])[order], np.concatenate(([0.0], np.cumsum(weight[~side][order])))
        if len(other) and side.any() and mass[-1] > 0:
            x = sign * score[side]
            below = mass[np.searchsorted(other, x, "left")] + mass[np.searchsorted(other, x, "right")]
            out[side] = below / (2 * mass[-1])
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
