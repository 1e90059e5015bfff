"""The difference of a score between two models on the same images, its interval and its p-value.

No p-value is bounded below by the number of replicates. The p-value of a proportion is exact: if the models do not differ,
swapping their predictions within a patient does not change the distribution. For an AUROC it comes from the closed-form
standard error, and for every other score from the standard deviation of the differences over the bootstrap replicates, which
resample the same patients for both models.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.comparison.paired import PairedSet
from retinabench.metrics.inference.auroc_variance import auroc_difference
from retinabench.metrics.inference.interval_methods import (
    ALL_ALIKE,
    ONE_PATIENT,
    UNDEFINED,
    Proportion,
    Ranked,
    difference_method,
    patients_of,
)
from retinabench.metrics.inference.p_values import sign_flip_p_value
from retinabench.metrics.inference.scaled import replicate_error, scaled_interval, t_test
from retinabench.metrics.sorted_images import Weighted

Floats = NDArray[np.float64]
SAME_ORDER = "no interval: both models rank the images in the same order"


@dataclass(frozen=True)
class PairedDifference:
    """First minus second model, with its interval and the two-sided p-value of "no difference"; NaN, and why, where undefined."""

    difference: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    why: str | None = None


def paired_difference(one: PairedSet, k: int, i: int, j: int, level: float = 0.95) -> PairedDifference:
    """Return the difference of one score between two models of a set.

    Args:
        one: The set.
        k: Index of the score.
        i: Index of the first model.
        j: Index of the second model.
        level: Level of the interval.

    Returns:
        The difference; without an interval where the set has no replicates.
    """
    spec, draws = one.scores[k], one.draws[:, i, k] - one.draws[:, j, k]
    difference = float(one.point[i, k] - one.point[j, k])
    if not len(draws) or not math.isfinite(difference):
        return PairedDifference(difference)
    a, b = one.whole[i], one.whole[j]
    if len(np.unique(a.cases.patient)) < 2:
        return PairedDifference(difference, why=ONE_PATIENT)
    method = spec.interval
    if isinstance(method, Proportion) and not method.resampled:
        return _of_proportions(method, a, b, difference, level)
    if isinstance(method, Ranked):
        (score_a, *masses_a), (score_b, *masses_b) = (_in_rows(w, *method.parts(w)) for w in (a, b))
        if np.array_equal(masses_a, masses_b):
            found = auroc_difference(
                masses_a[0] > 0, score_a, score_b, _in_rows(a, a.cases.patient)[0], np.sum(masses_a, axis=0)
            )
            if found.standard_error == 0 and difference == 0:
                return PairedDifference(difference, p=1.0, why=SAME_ORDER)
            span = 1 - method.low
            low, high = (span * end for end in found.interval(level))
            return _known(PairedDifference(difference, low, high, found.p_value), draws)
    of = difference_method(method).of
    degrees = min(patients_of(a, of), patients_of(b, of), len(draws)) - 1
    error = replicate_error(draws)
    ends = scaled_interval(difference, error, (-math.inf, math.inf), degrees, level)
    return _known(PairedDifference(difference, *ends, t_test(difference, error, degrees)), draws)


def _of_proportions(
    method: Proportion, a: Weighted, b: Weighted, difference: float, level: float
) -> PairedDifference:
    """Exact test by patients; Bonett and Price's adjusted interval, of sums over patients.

    Two patients are added, of whom the first model gets all right and the second none, and the other way round: no set is so
    small that the interval would have no width.

    References:
        Bonett and Price, Adjusted Wald confidence interval for a difference of binomial proportions based on paired data,
        J. Educ. Behav. Stat. 37:479 (2012).
    """
    (hit_a, weight), (hit_b, other) = (_in_rows(w, *method.counts(w)) for w in (a, b))
    if not np.array_equal(weight, other):
        raise InputError("the models count different images")
    patient = _in_rows(a, a.cases.patient)[0].astype(np.intp)
    held = np.bincount(patient, weight)
    gained = np.bincount(patient, weight * (hit_a - hit_b))[held > 0]
    held = held[held > 0]
    if len(held) < 2:
        return PairedDifference(difference, why=ONE_PATIENT)
    usual = held.mean()
    held, more = np.append(held, [usual, usual]), np.append(gained, [usual, -usual])
    centre = more.sum() / held.sum()
    residual, patients = more - centre * held, len(held)
    error = math.sqrt(patients / (patients - 1) * float(residual @ residual)) / held.sum()
    half = float(stats.t.ppf((1 + level) / 2, patients - 1)) * error
    low, high = max(-1.0, centre - half), min(1.0, centre + half)
    return PairedDifference(
        difference, float(min(low, difference)), float(max(high, difference)), sign_flip_p_value(gained)
    )


def _in_rows(w: Weighted, *columns: NDArray[np.generic]) -> list[Floats]:
    """Columns (N,) in the sorted order of the images, in the order of the rows, which all models share."""
    out = []
    for column in columns:
        rows = np.empty(len(column))
        rows[w.cases.order] = column
        out.append(rows)
    return out


def _known(found: PairedDifference, draws: Floats) -> PairedDifference:
    if found.high > found.low:
        return found
    why = UNDEFINED if math.isnan(replicate_error(draws)) else ALL_ALIKE
    return PairedDifference(found.difference, p=found.p, why=why)
