"""The risk on unlabelled new patients, estimated by weighing the labelled validation patients.

Two assumptions are on offer; neither can be checked without labels, and each gives another estimate:

* **Covariate shift**: P(label | probability, uncertainty) is the same, their distribution is another. A validation image gets the
  weight exp(b'f), with b of a logistic regression (ridge penalty 1) that tells the new images (1) from validation images (0) by
  f = 1, x, u, x^2, xu, u^2, where x is logit(prob) and u the uncertainty, both standardised and clipped.
* **Label shift**: P(probability, uncertainty | label) is the same, the prevalence is another; see `label_shift`.

The risk sum w num / sum w den is a smooth function of estimated weights, and its interval counts their error: the influence of
every patient of either set, through the weights as well, is squared and summed (sandwich variance, clustered by patient), and
the interval is that of Clopper and Pearson at the effective number of trials, as in `refutation`. No certificate is issued:
the level is that of large samples, under an assumption.

References:
    Shimodaira, Improving predictive inference under covariate shift by weighting the log-likelihood function, J. Stat. Plan.
    Inference 90:227 (2000). Bickel, Brückner and Scheffer, Discriminative learning under covariate shift, J. Mach. Learn. Res.
    10:2137 (2009).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from retinabench.core.results import Document
from retinabench.metrics.proportions import Interval, clopper_pearson

Floats = NDArray[np.float64]
LEAST_PATIENTS = 50
"""Effective number of validation patients below which no risk is estimated."""
MOST_GAP = 0.15
"""Distance of the weighted validation images from the new ones above which no risk is estimated."""
CLIP = 1e-6  # probabilities closer to 0 or 1 differ by rounding


@dataclass(frozen=True, eq=False)
class Images:
    """What is known of the images of a set without labels.

    Shapes: `prob` (N,), `uncertainty` (N,), `patient` (N,), `weight` (N,).
    """

    prob: Floats
    uncertainty: Floats
    patient: NDArray[np.intp]
    weight: Floats

    def by_patient(self, values: Floats) -> Floats:
        """(G, …) sums over the images of each patient of (N, …) values."""
        total = np.zeros((int(self.patient.max()) + 1, *values.shape[1:]))
        np.add.at(total, self.patient, values)
        return total


@dataclass(frozen=True)
class EstimatedRisk(Document):
    """A risk on new patients under an assumption."""

    risk: Interval
    effective_patients: float
    why: str | None = None


@dataclass(frozen=True, eq=False)
class Reweighting:
    """Estimated importance weights of the validation images, and how every patient moved the estimate.

    Shapes: `weight` (N,), `slope` (N, D), `own` (G, D), `other` (H, D).
    """

    validation: Images
    weight: Floats
    slope: Floats
    own: Floats
    other: Floats
    gap: float

    def risk(self, num: ArrayLike, den: ArrayLike, level: float = 0.95) -> EstimatedRisk:
        """Estimate sum w num / sum w den on the new patients.

        Shapes: `num` (N,), `den` (N,).
        """
        n, d = np.asarray(num, np.float64), np.asarray(den, np.float64)
        mass = self.validation.by_patient(self.weight * d)
        total = float(mass.sum())
        effective = total**2 / float(mass @ mass) if total > 0 else 0.0
        why = None
        if effective < LEAST_PATIENTS:
            why = f"the weights leave {effective:.0f} effective validation patients; {LEAST_PATIENTS} are needed"
        elif self.gap > MOST_GAP:
            why = f"the weighted validation images still differ from the new ones (distance {self.gap:.2f})"
        if why is not None:
            return EstimatedRisk(Interval(np.nan), effective, why)
        value = float(self.weight @ n) / total
        residual = n - value * d
        through = self.slope.T @ residual / total
        own = self.validation.by_patient(self.weight * residual) / total + self.own @ through
        variance = sum_of_squares(own) + sum_of_squares(self.other @ through)
        trials = effective
        if 0 < value < 1:
            # Few errors say little about their variance: as in `clustered_proportion`, images that are copies count as 2 patients.
            seen = np.count_nonzero(self.validation.by_patient(n))
            inverse = (seen * variance / (value * (1 - value)) + 2 / effective) / (seen + 2)
            tail = (1 - level) / 2
            trials = (stats.norm.isf(tail) / stats.t.isf(tail, effective - 1)) ** 2 / inverse
        low, high = clopper_pearson(value * trials, trials, level)
        return EstimatedRisk(Interval(value, float(low), float(high)), effective)

    def threshold(
        self,
        candidates: Iterable[float],
        sums: Callable[[float], tuple[ArrayLike, ArrayLike]],
        goal: float,
        level: float = 0.95,
    ) -> float | None:
        """Return the largest threshold whose estimated risk has a one-sided upper limit of at most the goal.

        Shapes: `sums` (N,).
        """
        for candidate in sorted(candidates, reverse=True):
            if self.risk(*sums(candidate), level=2 * level - 1).risk.high <= goal:
                return candidate
        return None


def covariate_weights(validation: Images, new: Images) -> Reweighting:
    """Estimate importance weights under covariate shift; the model is at the top of this file."""
    features = _features(validation, new)
    mass = np.concatenate([validation.weight, new.weight])
    is_new = np.repeat([0.0, 1.0], [len(validation.weight), len(new.weight)])
    ridge = np.eye(features.shape[1])
    ridge[0, 0] = 0  # the intercept is not penalised

    def loss(b: Floats) -> tuple[float, Floats]:
        z = features @ b
        value = mass @ (np.logaddexp(0, z) - is_new * z) + b @ ridge @ b / 2
        return float(value), features.T @ (mass * (special.expit(z) - is_new)) + ridge @ b

    b = optimize.minimize(loss, np.zeros(features.shape[1]), jac=True, method="BFGS").x
    share = special.expit(features @ b)
    curvature = (features * (mass * share * (1 - share))[:, None]).T @ features + ridge
    scores = features * (mass * (is_new - share))[:, None]
    steps = np.asarray(np.linalg.solve(curvature, scores.T).T, np.float64)
    ours = features[: len(validation.weight)]
    weight = np.asarray(np.exp(ours @ b) * validation.weight, np.float64)
    own = validation.by_patient(steps[: len(validation.weight)])
    other = new.by_patient(steps[len(validation.weight) :])
    gap = distance_after(validation, weight, new)
    return Reweighting(validation, weight, weight[:, None] * ours, own, other, gap)


def distance_after(validation: Images, weight: Floats, new: Images) -> float:
    """Return the largest difference of the distribution functions of prob, of weighted validation images and of new ones.

    If the distance stays large, the weights do not give the two sets the same distribution: the assumption or its form is wrong.

    Shapes: `weight` (N,).
    """
    values = np.concatenate([validation.prob, new.prob])
    order = np.argsort(values, kind="stable")
    ends = np.append(np.diff(values[order]) > 0, True)
    ours = np.append(weight, np.zeros(len(new.weight)))[order].cumsum()[ends]
    theirs = np.append(np.zeros(len(weight)), new.weight)[order].cumsum()[ends]
    return float(np.abs(ours / ours[-1] - theirs / theirs[-1]).max())


def _features(validation: Images, new: Images) -> Floats:
    """(N + M, 6) features of validation and new images."""
    prob = np.concatenate([validation.prob, new.prob])
    x = special.logit(np.clip(prob, CLIP, 1 - CLIP))
    u = np.concatenate([validation.uncertainty, new.uncertainty])
    columns = []
    for values in (x, u):
        scale = float(values.std()) or 1.0
        columns.append(np.clip((values - values.mean()) / scale, -3, 3))
    x, u = columns
    return np.column_stack([np.ones(len(x)), x, u, x**2, x * u, u**2])


def sum_of_squares(influence: Floats) -> float:
    """Return the variance of an estimate from the influences (G,) of its patients."""
    patients = len(influence)
    return float(influence @ influence) * patients / max(1, patients - 1)
