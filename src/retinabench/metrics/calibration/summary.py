"""Whether probabilities can be read as risks: the calibration line and curve, with intervals clustered by patient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.results import Document
from retinabench.metrics.calibration.recalibration import calibration_line_of, line_intervals_of
from retinabench.metrics.inference.bootstrap import cluster_codes
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.inference.proportions import binary, clustered_proportion
from retinabench.metrics.sorted_images import Cases

Floats = NDArray[np.float64]
BINS = 10


@dataclass(frozen=True)
class CurvePoint:
    """A tenth of the images, by their probability: its mean, and the share that is referable."""

    forecast: float
    observed: Interval
    images: int


@dataclass(frozen=True)
class CalibrationSummary(Document):
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


def calibration_summary(label: ArrayLike, prob: ArrayLike, cluster: ArrayLike) -> CalibrationSummary:
    """Return the calibration line and curve with clustered 95 % intervals.

    The line and its intervals are those of `score` (`line_intervals_of`). With images of one class, observed over expected has
    the interval of the prevalence, divided by the mean probability.

    Args:
        label: (N,) 0 or 1.
        prob: (N,) P(label = 1).
        cluster: (N,) patients.

    Returns:
        The summary; NaN where the line does not exist (one class, or classes that the probabilities part).

    References:
        Van Calster et al., BMC Medicine 17:230 (2019), for the measures.
    """
    y, p = binary(label, "label"), np.asarray(prob, np.float64)
    codes, _ = cluster_codes(cluster)
    w = Cases(y, p, patient=codes).weighted()
    ends = line_intervals_of(w)
    line = {name: Interval(value, *ends[name]) for name, value in vars(calibration_line_of(w)).items()}
    if p.any() and (y.all() or not y.any()):
        share, mean = clustered_proportion(y, np.ones(len(y)), codes), float(p.mean())
        line["observed_over_expected"] = Interval(share.value / mean, share.low / mean, share.high / mean)
    return CalibrationSummary(**line, curve=_curve(y, p, codes))


def _curve(y: NDArray[np.bool_], p: Floats, codes: NDArray[np.intp]) -> tuple[CurvePoint, ...]:
    """Groups of equally many images by probability; equal probabilities stay together."""
    order = np.sort(p)
    edges = np.unique(order[np.linspace(0, len(p) - 1, BINS + 1).round().astype(int)[1:-1]])
    number = np.searchsorted(edges, p, side="left")
    points = []
    for k in np.unique(number):
        held = number == k
        observed = clustered_proportion(y, held, codes)
        points.append(CurvePoint(float(p[held].mean()), observed, int(held.sum())))
    return tuple(points)
