"""The calibration line of probabilities, and the correction of their prior.

The logistic line logit P(y = 1) = intercept + slope x logit(p). Slope below 1: the model is overconfident; above 1:
it is underconfident. *In the large*: the intercept with the slope held at 1, 0 where as many images are positive as predicted.

Sources: Cox, Biometrika 45:562 (1958); Van Calster et al., BMC Medicine 17:230 (2019).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from retinabench.core.errors import InputError
from retinabench.metrics.inference.interval_methods import FEWEST_ERRORS, patients_of
from retinabench.metrics.inference.scaled import scaled_interval
from retinabench.metrics.sorted_images import EPS, Weighted

Floats = NDArray[np.float64]
ROUNDS, TOLERANCE = 100, 1e-12


@dataclass(frozen=True)
class CalibrationLine:
    """intercept, slope: the fitted line; in_the_large: the intercept at slope 1; observed_over_expected: sum y / sum p.

    Ideal: 0, 1, 0, 1. NaN where the maximum likelihood does not exist (one class, or classes parted by p).
    """

    intercept: float
    slope: float
    in_the_large: float
    observed_over_expected: float


def calibration_line_of(w: Weighted) -> CalibrationLine:
    """Fit the calibration line by maximum likelihood; p is clipped to [1e-15, 1 - 1e-15].

    Args:
        w: The weighted images.

    Returns:
        The line; NaN where the maximum likelihood does not exist.
    """
    return w.derived(_line)


def _line(w: Weighted) -> CalibrationLine:
    x = np.asarray(logit(np.clip(w.cases.prob, EPS, 1 - EPS)), np.float64)
    one = np.ones((len(x), 1))
    intercept, slope = _fit(w, np.column_stack([one, x]), 0.0)
    (large,) = _fit(w, one, x)
    expected = float(w.weight @ w.cases.prob)
    return CalibrationLine(intercept, slope, large, w.positives / expected if expected > 0 else np.nan)


def line_intervals_of(w: Weighted, level: float = 0.95) -> dict[str, tuple[float, float]]:
    """Return intervals of the calibration line, clustered by patient.

    The standard errors of the fits are sandwiches A^-1 G/(G-1) sum_g s_g s_g' A^-1 with the scores s_g of the G patients and
    the curvature A of the likelihood, with Student's t of one degree of freedom less than the rarer class has patients, or than
    patients have an image on the wrong side of one half, if these are fewer: where the classes are nearly parted, few images decide
    the fits, and below 5 such patients they have no interval. The ratio of observed to expected has the linearised error of a
    ratio, on the logarithmic scale.

    Args:
        w: The weighted images.
        level: Level of the intervals.

    Returns:
        Low and high end by the fields of `CalibrationLine`; NaN where undefined.

    References:
        Liang and Zeger, Longitudinal data analysis using generalized linear models, Biometrika 73:13 (1986).
    """
    line = calibration_line_of(w)
    x = np.asarray(logit(np.clip(w.cases.prob, EPS, 1 - EPS)), np.float64)
    one, patients = np.ones((len(x), 1)), int(np.count_nonzero(np.bincount(w.cases.patient, w.weight)))
    errors = _sandwich(w, np.column_stack([one, x]), np.array([line.intercept, line.slope]), 0 * x)
    errors = np.append(errors, _sandwich(w, one, np.array([line.in_the_large]), x))
    residual = np.bincount(
        w.cases.patient, w.weight * (w.cases.label - line.observed_over_expected * w.cases.prob)
    )
    ratio = np.sqrt(patients / max(patients - 1, 1) * float(residual @ residual)) / max(
        float(w.weight @ w.cases.prob), 1e-300
    )
    positive = (0.0, np.inf)
    classes = patients_of(w, "classes") - 1
    wrong = len(np.unique(w.cases.patient[(w.weight > 0) & ((w.cases.prob > 0.5) != w.cases.label)]))
    of_fits = min(classes, wrong - 1) if wrong >= FEWEST_ERRORS else 0
    fits = [((-np.inf, np.inf), of_fits)] * 3
    return {
        name: scaled_interval(value, float(error), bounds, degrees, level)
        for (name, value), error, (bounds, degrees) in zip(
            vars(line).items(), [*errors, ratio], [*fits, (positive, classes)], strict=True
        )
    }


def _sandwich(w: Weighted, design: Floats, beta: Floats, offset: Floats) -> Floats:
    """(K,) standard errors of the coefficients of a logistic fit, clustered by patient; NaN where there is no fit."""
    if not np.isfinite(beta).all():
        return np.full(len(beta), np.nan)
    mean = np.asarray(expit(offset + design @ beta), np.float64)
    curvature = (design * (w.weight * mean * (1 - mean))[:, None]).T @ design
    scores = design * (w.weight * (w.cases.label - mean))[:, None]
    by_patient = np.stack([np.bincount(w.cases.patient, column) for column in scores.T], axis=1)
    patients = int(np.count_nonzero(np.bincount(w.cases.patient, w.weight)))
    if patients < 2:
        return np.full(len(beta), np.nan)
    bread = np.linalg.pinv(curvature)
    meat = patients / (patients - 1) * by_patient.T @ by_patient
    return np.asarray(np.sqrt(np.maximum(np.diag(bread @ meat @ bread), 0.0)), np.float64)


def _fit(w: Weighted, design: Floats, offset: Floats | float) -> tuple[float, ...]:
    """Newton's method for weighted logistic regression, steps halved where the likelihood would fall."""
    undefined: tuple[float, ...] = (float("nan"),) * design.shape[1]
    if w.positives <= 0 or w.negatives <= 0:
        return undefined
    beta: Floats = np.zeros(design.shape[1])
    beta[1:] = 1.0
    y = w.cases.label

    def loss(b: Floats) -> float:
        z = offset + design @ b
        return float(w.weight @ np.logaddexp(0, np.where(y, -z, z)))

    now = loss(beta)
    for _ in range(ROUNDS):
        mean = np.asarray(expit(offset + design @ beta), np.float64)
        gradient = design.T @ (w.weight * (y - mean))
        curvature = (design * (w.weight * mean * (1 - mean))[:, None]).T @ design
        try:
            step = np.linalg.solve(curvature, gradient)
        except np.linalg.LinAlgError:
            return undefined
        scale = 1.0
        while not (then := loss(beta + scale * step)) <= now + 1e-12 * abs(now) and scale > 1e-8:
            scale /= 2
        beta, now = beta + scale * step, then
        if not np.isfinite(beta).all() or np.abs(beta).max() > 1e3:
            return undefined
        if np.abs(scale * step).max() < TOLERANCE * max(1.0, np.abs(beta).max()):
            return tuple(float(b) for b in beta)
    return undefined


def correct_prior(prob: ArrayLike, positive_weight: float) -> Floats:
    """Undo class weights of training: logit(p) - ln(positive_weight), (N,) to (N,).

    positive_weight: how many times more a positive image counted in the training loss than a negative one. A model
    trained to a balanced prior at 19.6 % prevalence has (1 - 0.196) / 0.196 = 4.1. The order of the images by p, and
    so AUROC, stays; NLL, Brier, accuracy at 1/2 and every uncertainty that follows |p - 1/2| change.
    """
    if not positive_weight > 0:
        raise InputError(f"the weight of positive images is {positive_weight}", hint="It must be above 0.")
    p = np.asarray(prob, np.float64)
    return np.asarray(p / (p + positive_weight * (1 - p)))
