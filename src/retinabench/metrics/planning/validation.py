"""Images needed to validate probabilities: observed over expected, calibration slope, C-statistic, net benefit.

The four criteria of Riley et al., each as the number of independent images whose standard error gives a 95 % interval of
the stated width. What a model's linear predictors logit(p) look like is taken from a pilot; or from the AUROC and the
prevalence, as those of a calibrated model with normal scores (logit(p) is normal in each class, with standard deviation
d = sqrt(2) Phi^-1(AUROC) and means logit(prevalence) +- d^2/2).

References:
    Riley, Debray, Collins, Archer, Ensor, van Smeden and Snell, Minimum sample size for external validation of a clinical
    prediction model with a binary outcome, Stat. Med. 40:4230 (2021).

>>> round(images_for_observed_over_expected(0.018, 1.0))
905
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import expit, logit

from retinabench.core.errors import InputError
from retinabench.metrics.planning.proportions import check_share

Floats = NDArray[np.float64]
Z = float(stats.norm.ppf(0.975))


def images_for_observed_over_expected(prevalence: float, width: float = 0.2) -> float:
    """Return the images for a 95 % interval of observed/expected of the stated width.

    SE(ln O/E) = sqrt((1 - prevalence) / (n prevalence)), the interval exp(-+ z SE) has the width 2 sinh(z SE).
    """
    _check_width(width)
    error = math.asinh(width / 2) / Z
    return (1 - prevalence) / (prevalence * error**2)


def images_for_calibration_slope(predictors: ArrayLike, weight: ArrayLike, width: float = 0.2) -> float:
    """Return the images for a 95 % interval of the calibration slope of the stated width, for a calibrated model.

    n = I_a / (SE^2 (I_a I_b - I_ab^2)), with the means I_a of v, I_ab of v x and I_b of v x^2 over the linear predictors x
    and v = p (1 - p).

    Shapes: `predictors` (K,), `weight` (K,).
    """
    _check_width(width)
    x, w = np.asarray(predictors, np.float64), np.asarray(weight, np.float64)
    v = w / w.sum() * expit(x) * expit(-x)
    a, ab, b = float(v.sum()), float(v @ x), float(v @ x**2)
    if a * b - ab**2 <= 0:
        raise InputError("the calibration slope needs probabilities that differ")
    return a / ((width / (2 * Z)) ** 2 * (a * b - ab**2))


def images_for_c_statistic(auroc: float, prevalence: float, width: float = 0.1) -> float:
    """Return the images for a 95 % interval of the C-statistic (the AUROC) of the stated width, by Newcombe's formula.

    SE^2 = C (1 - C) (1 + (n/2 - 1) ((1 - C) / (2 - C) + C / (1 + C))) / (n^2 prevalence (1 - prevalence)).

    References:
        Newcombe, Confidence intervals for an effect size measure based on the Mann-Whitney statistic, part 2, Stat. Med.
        25:559 (2006).
    """
    _check_width(width)
    slope = (1 - auroc) / (2 - auroc) + auroc / (1 + auroc)
    scale = auroc * (1 - auroc) / (prevalence * (1 - prevalence) * (width / (2 * Z)) ** 2)
    # n^2 = scale (1 + (n / 2 - 1) slope)
    half = scale * slope / 4
    return half + math.sqrt(half**2 + scale * (1 - slope))


def images_for_net_benefit(
    sensitivity: float, specificity: float, prevalence: float, threshold: float, width: float = 0.2
) -> float:
    """Return the images for a 95 % interval of the standardised net benefit of the stated width.

    With w = (1 - q) / q x t / (1 - t), q the prevalence and t the threshold probability, n SE^2 =
    sens (1 - sens) / q + w^2 spec (1 - spec) / (1 - q) + w^2 (1 - spec)^2 / (q (1 - q)).

    References:
        Marsh, Janes and Pepe, Statistical inference for net benefit measures in biomarker validation studies, Biometrics
        76:843 (2020).
    """
    _check_width(width)
    check_share("threshold", threshold)
    w = (1 - prevalence) / prevalence * threshold / (1 - threshold)
    unit = sensitivity * (1 - sensitivity) / prevalence
    unit += w**2 * specificity * (1 - specificity) / (1 - prevalence)
    unit += w**2 * (1 - specificity) ** 2 / (prevalence * (1 - prevalence))
    return unit / (width / (2 * Z)) ** 2


def calibrated_predictors(auroc: float, prevalence: float) -> tuple[Floats, Floats]:
    """Return the linear predictors of a calibrated binormal model, as points (K,) and their probabilities (K,)."""
    distance = math.sqrt(2) * float(stats.norm.ppf(auroc))
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    weights = weights / weights.sum()
    centre, shift = float(logit(prevalence)), distance**2 / 2
    points = [centre + sign * shift + distance * nodes for sign in (1, -1)]
    return np.concatenate(points), np.concatenate([prevalence * weights, (1 - prevalence) * weights])


def threshold_of_sensitivity(auroc: float, prevalence: float, sensitivity: float) -> tuple[float, float]:
    """Return the threshold probability at which a calibrated binormal model has a sensitivity, and its specificity there."""
    distance = math.sqrt(2) * float(stats.norm.ppf(auroc))
    cut = float(stats.norm.isf(sensitivity))  # in standard deviations from the mean of the positives
    threshold = float(expit(logit(prevalence) + distance**2 / 2 + distance * cut))
    return threshold, float(stats.norm.cdf(cut + distance))


def _check_width(width: float) -> None:
    if not 0 < width < 10:
        raise InputError(
            f"the width of the interval is {width:g}", hint="Ask for a width above 0, such as 0.2."
        )
