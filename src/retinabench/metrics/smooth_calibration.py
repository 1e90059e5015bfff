"""The smooth calibration curve, and how far it lies from the diagonal: ICI, E50 and E90.

The curve is a logistic regression on a restricted cubic spline of x = logit(p) with four knots (percentiles 5, 35, 65 and 95):

    logit P(y = 1 | x) = b0 + b1 x + b2 s1(x) + b3 s2(x)

so that a calibrated model has b = (0, 1, 0, 0). With q_i the curve at the probability p_i of image i, the integrated calibration index
(ICI) is the mean of |q_i - p_i|, E50 their median and E90 their 90th percentile. They are above 0 for a calibrated model, too.

References:
    Austin and Steyerberg, The Integrated Calibration Index (ICI) and related metrics for quantifying the calibration of logistic
    regression models, Stat. Med. 38:4051 (2019); Harrell, Regression modeling strategies (2015), section 2.4.5, for the spline.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit, stdtrit

from retinabench.core.results import Document
from retinabench.metrics.calibration import logistic_covariance, logistic_curvature, logistic_fit
from retinabench.metrics.intervals import patients_of
from retinabench.metrics.weighted_images import EPS, Floats, Weighted

KNOTS = (0.05, 0.35, 0.65, 0.95)
FEWEST_DEGREES = 11  # patients with a wrong call less the four terms of the curve
SHOWN = (0.005, 0.995)  # percentiles of x between which the curve is shown
FEWEST_WRONG = 15
POINTS, DRAWS, AT_MOST = 50, 1000, 1000  # points of the curve, curves of calibrated models, images of each


@dataclass(frozen=True)
class SmoothCalibration(Document):
    """The curve at G probabilities with its pointwise 95 % band, and its distances from the diagonal.

    `calibrated_ici` is what the ICI of a calibrated model with these probabilities stays below in 95 % of studies; None where such a
    model would call fewer than `FEWEST_WRONG` images wrongly (`expected_wrong`, the sum of min(p, 1 - p)), which do not determine a curve.
    Shapes: `prob` (G,), `observed` (G,), `low` (G,), `high` (G,).
    """

    ici: float
    e50: float
    e90: float
    calibrated_ici: float | None
    expected_wrong: float
    prob: Floats
    observed: Floats
    low: Floats
    high: Floats


def smooth_calibration(w: Weighted, level: float = 0.95) -> SmoothCalibration | None:
    """Return the smooth calibration curve of N images; None where the likelihood has no maximum or too few patients decide it.

    The band is that of the sandwich covariance of b, clustered by patient, with Student's t and the variance times m / (m - 4) for m
    patients with a wrong call. Calibrated models have b drawn from the normal
    distribution about (0, 1, 0, 0) whose covariance is the inverse curvature there, times the design effect of the fit.
    """
    x = np.asarray(logit(np.clip(w.cases.prob, EPS, 1 - EPS)), np.float64)
    design = _spline(x, knots := np.unique(np.quantile(x, KNOTS)))
    wrong = len(np.unique(w.cases.patient[(w.weight > 0) & ((w.cases.prob > 0.5) != w.cases.label)]))
    terms = design.shape[1]
    degrees = min(patients_of(w, "classes"), wrong) - terms
    if degrees < FEWEST_DEGREES or np.linalg.matrix_rank(design) < terms:
        return None
    basis, mixed = np.linalg.qr(design)  # the terms of the spline are nearly collinear
    beta = np.linalg.solve(mixed, logistic_fit(w, basis * len(x) ** 0.5, 0.0)) * len(x) ** 0.5
    if not np.isfinite(beta).all():
        return None
    covariance = logistic_covariance(w, design, beta, 0 * x)
    least, largest = np.quantile(x, SHOWN).tolist()
    curve = _spline(np.linspace(least, largest, POINTS), knots)
    variance = np.einsum("gk,kl,gl->g", curve, covariance, curve)
    few = (degrees + terms) / degrees  # residuals at few patients are those of a curve that follows them
    half = float(stdtrit(degrees, (1 + level) / 2)) * np.sqrt(np.maximum(few * variance, 0.0))
    ends = [expit(curve @ beta + side) for side in (0.0, -half, half)]
    gap = _distances(design, beta[None])[0]
    e50, e90 = np.quantile(gap, (0.5, 0.9)).tolist()
    expected = float((w.weight * np.minimum(w.cases.prob, 1 - w.cases.prob)).sum())
    bound = None if expected < FEWEST_WRONG else _calibrated_ici(w, design, beta, covariance, knots, level)
    return SmoothCalibration(float(gap.mean()), e50, e90, bound, expected, expit(curve[:, 1]), *ends)


def _calibrated_ici(
    w: Weighted, design: Floats, beta: Floats, covariance: Floats, knots: Floats, level: float
) -> float:
    """What the ICI of a calibrated model stays below with this probability."""
    terms = design.shape[1]
    # A thousand images stand for all of them in the thousand curves.
    thousand = _spline(np.quantile(design[:, 1], (np.arange(AT_MOST) + 0.5) / AT_MOST), knots)
    perfect = np.eye(terms)[1]
    there, here = (logistic_curvature(w, design, one, 0.0)[1] for one in (beta, perfect))
    effect = max(float(np.trace(there @ covariance)) / terms, 1.0)
    root = np.linalg.svd(effect * np.linalg.pinv(here))
    noise = np.random.default_rng(0x1C1).normal(size=(DRAWS, terms)) * np.sqrt(root.S) @ root.U.T
    return float(np.quantile(_distances(thousand, perfect + noise).mean(axis=1), level))


def _distances(design: Floats, betas: Floats) -> Floats:
    """(R, N) distances of R curves (R, K) from the diagonal at images (N, K)."""
    return np.abs(expit(betas @ design.T) - expit(design[:, 1]))


def _spline(x: Floats, knots: Floats) -> Floats:
    """(N, K) constant, x and the terms of the restricted cubic spline, which are linear beyond the outer knots."""
    columns = [np.ones(len(x)), x]
    cubes = np.maximum(x[:, None] - knots, 0) ** 3
    for j in range(len(knots) - 2):
        first, before, last = knots[0], knots[-2], knots[-1]
        term = cubes[:, j] - cubes[:, -2] * (last - knots[j]) / (last - before)
        columns.append((term + cubes[:, -1] * (before - knots[j]) / (last - before)) / (last - first) ** 2)
    return np.column_stack(columns)
