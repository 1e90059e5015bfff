"""The prevalence among unlabelled new patients, where P(probability, uncertainty | label) is that of the validation patients.

With m the mean of prob among the new images and m_y that among validation images of label y, the prevalence is

    q = (m - m_0) / (m_1 - m_0),

the black-box shift estimator with soft predictions: it needs no calibration. A validation image of label y gets the weight q / pi
(y = 1) or (1 - q) / (1 - pi) (y = 0), pi being the prevalence there. The maximum-likelihood estimate stands beside it; it does
need calibrated probabilities, so that a large difference is evidence against calibration or against label shift.

References:
    Lipton, Wang and Smola, Detecting and correcting for label shift with black box predictors, ICML (2018). Saerens, Latinne and
    Decaestecker, Adjusting the outputs of a classifier to new a priori probabilities: a simple procedure, Neural Comput. 14:21
    (2002).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize, stats

from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.shift.weighted import Images, Reweighting, distance_after, sum_of_squares
from retinabench.metrics.proportions import Interval

LEVEL = 0.95  # of the interval of the prevalence
SEPARATION = 5.0  # standard errors that m_1 - m_0 must be above 0


@dataclass(frozen=True, eq=False)
class LabelShift:
    """The prevalence of new patients under label shift, and the weights that follow from it."""

    prevalence: Interval
    likelihood: float
    validation_prevalence: float
    weights: Reweighting | None
    why: str | None = None

    @property
    def positive_weight(self) -> float:
        """What `recalibration.correct_prior` takes to fit probabilities to the new prevalence: an odds ratio.

        NaN where the prevalence is not estimated, or is 0 or 1.
        """
        pi, q = self.validation_prevalence, self.prevalence.value
        return (pi / (1 - pi)) * ((1 - q) / q) if 0 < q < 1 else float("nan")


def label_shift(validation: Images, label: ArrayLike, new: Images) -> LabelShift:
    """Estimate the prevalence among unlabelled new patients under label shift.

    Shapes: `label` (N,).
    """
    y = np.asarray(label, np.float64)
    v, p = validation.weight, validation.prob
    pi = float(v @ y / v.sum())
    if not 0 < pi < 1:
        raise InputError("validation images of both labels are needed", column="label")
    likelihood = likelihood_prevalence(new.prob, pi, new.weight)
    m1, m0 = float(v @ (y * p) / (v @ y)), float(v @ ((1 - y) * p) / (v @ (1 - y)))
    m = float(new.weight @ new.prob / new.weight.sum())
    of1, of0 = v * y * (p - m1) / (v @ y), v * (1 - y) * (p - m0) / (v @ (1 - y))
    gap_error = np.sqrt(sum_of_squares(validation.by_patient(of1 - of0)))
    if not m1 - m0 > SEPARATION * gap_error:
        why = "the model tells the labels apart too little to estimate a prevalence from its probabilities"
        return LabelShift(Interval(np.nan), likelihood, pi, None, why)
    q = (m - m0) / (m1 - m0)
    own = validation.by_patient(
        np.column_stack([-((1 - q) * of0 + q * of1) / (m1 - m0), v * (y - pi) / v.sum()])
    )
    other = new.by_patient(new.weight * (new.prob - m) / new.weight.sum())[:, None] * [1 / (m1 - m0), 0.0]
    error = np.sqrt(sum_of_squares(own[:, 0]) + sum_of_squares(other[:, 0]))
    half = float(stats.norm.ppf((1 + LEVEL) / 2) * error)
    q, low, high = (float(np.clip(value, 0, 1)) for value in (q, q - half, q + half))
    weight = v * np.where(y == 1, q / pi, (1 - q) / (1 - pi))
    by_q = v * np.where(y == 1, 1 / pi, -1 / (1 - pi))
    by_pi = v * np.where(y == 1, -q / pi**2, (1 - q) / (1 - pi) ** 2)
    gap = distance_after(validation, weight, new)
    weights = Reweighting(validation, weight, np.column_stack([by_q, by_pi]), own, other, gap)
    return LabelShift(Interval(q, low, high), likelihood, pi, weights)


def likelihood_prevalence(prob: ArrayLike, prior: float, weight: ArrayLike | None = None) -> float:
    """Return the prevalence that maximises the likelihood of unlabelled probabilities under label shift.

    It is the limit of the EM algorithm of Saerens et al. (2002): the q that maximises sum log(q p / prior + (1 - q) (1 - p) /
    (1 - prior)), which is concave. The probabilities must be calibrated at the prevalence `prior`.

    Shapes: `prob` (M,), `weight` (M,).
    """
    p = np.asarray(prob, np.float64)
    v = np.ones(len(p)) if weight is None else np.asarray(weight, np.float64)
    one, zero = p / prior, (1 - p) / (1 - prior)

    def score(q: float) -> float:
        return float(v @ ((one - zero) / np.maximum(q * one + (1 - q) * zero, 1e-300)))

    if score(0.0) <= 0:
        return 0.0
    return 1.0 if score(1.0) >= 0 else float(optimize.brentq(score, 0.0, 1.0, xtol=1e-12))
