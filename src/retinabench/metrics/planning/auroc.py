"""Images needed for an AUROC: for an interval of stated width, and to show a difference of two AUROCs.

The variance of an AUROC is that of DeLong's and Obuchowski's placement values under the equal-variance binormal model,
with a design effect for each class. With A the AUROC, z = Phi^-1(A), Q = P(Z1 <= z, Z2 <= z) for standard normal variables of
correlation 1/2, and n1 and n0 images of the classes:

    variance = (D1 / n1 + D0 / n0) (Q - A^2) + (A - 2 Q + A^2) / (n1 n0)

Q is the probability that two positive images are both ranked above a negative one; the last term is of smaller order. The
covariance of the placements of a patient's positive and negative images is negative and left out, which errs on the side of more
patients.

>>> round(auroc_standard_error(0.8, 50, 50), 4)
0.0437
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats
from scipy.special import owens_t

from retinabench.core.errors import InputError
from retinabench.metrics.planning.clusters import Clusters
from retinabench.metrics.planning.proportions import check_share


def auroc_standard_error(
    auroc: float, positives: float, negatives: float, *, effects: tuple[float, float] = (1.0, 1.0)
) -> float:
    """Return the standard error of an AUROC under the equal-variance binormal model.

    References:
        Obuchowski, Sample size calculations in studies of test accuracy, Stat. Methods Med. Res. 7:371 (1998), with an
        approximation of the same variance; Hanley and McNeil, Radiology 143:29 (1982), for the decomposition.
    """
    both = _ranked_above_twice(auroc)
    placement = both - auroc**2
    pair = auroc - 2 * both + auroc**2
    return math.sqrt(
        placement * (effects[0] / positives + effects[1] / negatives) + pair / (positives * negatives)
    )


def images_for_auroc(
    auroc: float, half_width: float, prevalence: float, clusters: Clusters, level: float = 0.95
) -> float:
    """Return the number of images, of both classes together, whose AUROC has an interval of the stated half-width."""
    _check_auroc(auroc)
    if not 0 < half_width < 0.5:
        raise InputError(f"the half-width is {half_width:g}", hint="It lies between 0 and 0.5, such as 0.05.")
    target = half_width / float(stats.norm.ppf((1 + level) / 2))
    return _images_for_variance(auroc, target**2, prevalence, clusters)


def images_for_difference(
    auroc: tuple[float, float],
    between: float,
    prevalence: float,
    clusters: Clusters,
    *,
    power: float = 0.8,
    level: float = 0.95,
) -> float:
    """Return the number of images that show a difference between two models' AUROCs on the same images.

    The variance of the difference is V1 + V2 - 2 r sqrt(V1 V2), under the hypothesis of no difference 2 V (1 - r) at the mean
    AUROC; the two-sided test has the level 1 - `level`.

    References:
        Obuchowski and McClish, Sample size determination for diagnostic accuracy studies involving binormal ROC curve
        indices, Stat. Med. 16:1529 (1997).
    """
    for value in auroc:
        _check_auroc(value)
    if auroc[0] == auroc[1]:
        raise InputError("the two AUROCs are equal", hint="State two that differ.")
    if not 0 <= between < 1:
        raise InputError(
            f"the correlation between the AUROCs is {between:g}", hint="It lies in [0, 1), such as 0.5."
        )
    check_share("power", power)
    one, two = (_unit_variance(value, prevalence, clusters) for value in auroc)
    null = 2 * (1 - between) * _unit_variance((auroc[0] + auroc[1]) / 2, prevalence, clusters)
    alternative = one + two - 2 * between * math.sqrt(one * two)
    z = float(stats.norm.ppf((1 + level) / 2)), float(stats.norm.ppf(power))
    return ((z[0] * math.sqrt(null) + z[1] * math.sqrt(alternative)) / (auroc[0] - auroc[1])) ** 2


def _unit_variance(auroc: float, prevalence: float, clusters: Clusters) -> float:
    """Return N times the variance, to leading order: (D1 / prevalence + D0 / (1 - prevalence)) (Q - A^2)."""
    first = clusters.positive_effect(prevalence) / prevalence
    second = clusters.negative_effect(prevalence) / (1 - prevalence)
    return (first + second) * (_ranked_above_twice(auroc) - auroc**2)


def _images_for_variance(auroc: float, variance: float, prevalence: float, clusters: Clusters) -> float:
    """Solve the variance for the number of images N: variance = unit / N + pair / (N^2 prevalence (1 - prevalence))."""
    unit = _unit_variance(auroc, prevalence, clusters)
    pair = (auroc - 2 * _ranked_above_twice(auroc) + auroc**2) / (prevalence * (1 - prevalence))
    return (unit + math.sqrt(unit**2 + 4 * variance * pair)) / (2 * variance)


def _ranked_above_twice(auroc: float) -> float:
    """Return Q, by the identity of the bivariate normal distribution with Owen's T function.

    P(Z1 <= z, Z2 <= z) = Phi(z) - 2 T(z, sqrt((1 - r) / (1 + r))), here with r = 1/2.
    """
    z = float(stats.norm.ppf(auroc))
    return float(stats.norm.cdf(z) - 2 * owens_t(z, np.sqrt(1 / 3)))


def _check_auroc(auroc: float) -> None:
    if not 0.5 <= auroc < 1:
        raise InputError(f"the AUROC is {auroc:g}", hint="Expect a value from 0.5 to below 1.")
