"""Whether probabilities can be read as risks: the calibration line and curve with intervals that heed patients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import expit, logit

from retinabench.metrics.inference.bootstrap import cluster_codes
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.inference.proportions import binary, clustered_proportion
from retinabench.metrics.recalibration import calibration_line
from retinabench.metrics.sorted_images import EPS

Floats = NDArray[np.float64]
BINS = 10


@dataclass(frozen=True)
class CurvePoint:
    """A tenth of the images, by their probability: its mean, and the share that is referable."""

    forecast: float
    observed: Interval
    images: int


@dataclass(frozen=True)
class CalibrationSummary:
    """Calibration of P(referable), per image.

    Args:
        slope: Of logit P(referable) on logit p; 1 is right, below 1 the probabilities are too extreme.
        intercept: Of that line; 0 is right where the slope is 1.
        in_the_large: The intercept with the slope held at 1: 0 is right, below 0 disease is predicted too often.
        observed_over_expected: Referable images over the sum of the probabilities; 1 is right.
        curve: The calibration curve, over groups of equally many images.
    """

    slope: Interval
    intercept: Interval
    in_the_large: Interval
    observed_over_expected: Interval
    curve: tuple[CurvePoint, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the part of the JSON."""
        names = ("slope", "intercept", "in_the_large", "observed_over_expected")
        return {
            **{name: getattr(self, name).to_dict() for name in names},
            "curve": [
                {"forecast": one.forecast, "observed": one.observed.to_dict(), "images": one.images}
                for one in self.curve
            ],
        }


def calibration_summary(
    label: ArrayLike, prob: ArrayLike, cluster: ArrayLike, level: float = 0.95
) -> CalibrationSummary:
    """Return the calibration line and curve with clustered intervals.

    The line's intervals are Student's t intervals of the cluster-robust ("sandwich") standard errors of the logistic
    regression; observed over expected has one on the logarithmic scale, with the linearised variance of the ratio.

    Args:
        label: (N,) 0 or 1.
        prob: (N,) P(label = 1).
        cluster: (N,) patients.
        level: Level of the intervals.

    Returns:
        The summary; NaN where the line does not exist (one class, or classes that the probabilities part).

    References:
        Van Calster et al., BMC Medicine 17:230 (2019), for the measures; Liang and Zeger, Biometrika 73:13 (1986), for the
        standard errors.
    """
    y, p = binary(label, "label").astype(np.float64), np.asarray(prob, np.float64)
    codes, patients = cluster_codes(cluster)
    line = calibration_line(y, p)
    x = np.asarray(logit(np.clip(p, EPS, 1 - EPS)), np.float64)
    one = np.ones((len(x), 1))
    t = float(stats.t.ppf((1 + level) / 2, patients - 1)) if patients > 1 else np.nan
    of_line = _robust_errors(np.column_stack([one, x]), line.intercept + line.slope * x, y, codes)
    of_level = _robust_errors(one, line.in_the_large + x, y, codes)
    values = (line.intercept, line.slope, line.in_the_large)
    intercept, slope, large = (
        Interval(value, float(value - t * error), float(value + t * error))
        for value, error in zip(values, (*of_line, *of_level), strict=True)
    )
    ratio = _observed_over_expected(y, p, codes, t, level)
    return CalibrationSummary(slope, intercept, large, ratio, _curve(y, p, codes, level))


def _robust_errors(design: Floats, linear: Floats, y: Floats, codes: NDArray[np.intp]) -> Floats:
    """Cluster-robust standard errors of a logistic regression at its solution, with the factor G / (G - 1)."""
    width, patients = design.shape[1], int(codes.max()) + 1
    if not np.isfinite(linear).all() or patients < 2:
        return np.full(width, np.nan)
    mean = np.asarray(expit(linear), np.float64)
    bread = np.linalg.pinv((design * (mean * (1 - mean))[:, None]).T @ design)
    scores = np.stack([np.bincount(codes, design[:, k] * (y - mean), patients) for k in range(width)])
    meat = patients / (patients - 1) * scores @ scores.T
    return np.asarray(np.sqrt(np.diag(bread @ meat @ bread)))


def _observed_over_expected(
    y: Floats, p: Floats, codes: NDArray[np.intp], t: float, level: float
) -> Interval:
    expected = float(p.sum())
    if expected <= 0:
        return Interval(np.nan)
    ratio = float(y.sum()) / expected
    residual = np.bincount(codes, y - ratio * p)
    patients = len(residual)
    error = (
        float(np.sqrt(patients / (patients - 1) * residual @ residual)) / expected if patients > 1 else np.nan
    )
    if 0 < y.mean() < 1 and error > 0:
        return Interval(
            ratio, ratio * float(np.exp(-t * error / ratio)), ratio * float(np.exp(t * error / ratio))
        )
    share = clustered_proportion(
        y, np.ones(len(y)), codes, level
    )  # of one class: the interval of the prevalence
    scale = len(y) / expected
    return Interval(ratio, share.low * scale, share.high * scale)


def _curve(y: Floats, p: Floats, codes: NDArray[np.intp], level: float) -> tuple[CurvePoint, ...]:
    """Groups of equally many images by probability; equal probabilities stay together."""
    order = np.sort(p)
    edges = np.unique(order[np.linspace(0, len(p) - 1, BINS + 1).round().astype(int)[1:-1]])
    number = np.searchsorted(edges, p, side="left")
    points = []
    for k in np.unique(number):
        held = number == k
        observed = clustered_proportion(y, held, codes, level)
        points.append(CurvePoint(float(p[held].mean()), observed, int(held.sum())))
    return tuple(points)
