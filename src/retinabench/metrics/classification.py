"""Accuracy, discrimination and proper scores of weighted images.

A score takes weighted images, `auroc` and `nll` also label (N,) 0/1, prob (N,) = P(label = 1) and an optional weight (N,);
it returns a float, NaN where undefined. An image is *positive by the model* where prob > 1/2; of sorted images, by the
threshold they were given.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.sorted_images import Bools, Cases, RankedImages, Weighted

Floats = NDArray[np.float64]


def _weighted(label: ArrayLike, prob: ArrayLike, weight: ArrayLike | None) -> Weighted:
    return Cases(label, prob).weighted(weight)


# ------------------------------------------------------------------------------- from arrays


def auroc(label: ArrayLike, prob: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Return P(a positive image ranks above a negative one) + P(tie) / 2.

    Args:
        label: (N,) 0 or 1.
        prob: (N,) P(label = 1).
        weight: (N,) images that each row stands for; None: 1 each.

    Returns:
        The area under the ROC curve; NaN with one class.
    """
    return auroc_of(_weighted(label, prob, weight))


def nll(label: ArrayLike, prob: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Return the mean of -ln P(label); probabilities are clipped to [1e-15, 1 - 1e-15].

    Args:
        label: (N,) 0 or 1.
        prob: (N,) P(label = 1).
        weight: (N,) images that each row stands for; None: 1 each.

    Returns:
        The negative log-likelihood, nats per image.
    """
    return nll_of(_weighted(label, prob, weight))


# ------------------------------------------------------------------- from sorted, weighted images


def accuracy_of(w: Weighted) -> float:
    """Share of correct predictions, sum of w over correct predictions / W.

    References:
        Band et al., Benchmarking Bayesian deep learning on diabetic retinopathy detection tasks, NeurIPS (2021).
    """
    return w.mean(~w.cases.error)


def nll_of(w: Weighted) -> float:
    """Mean negative log likelihood -ln p(y), nats per image.

    References:
        Good, Rational decisions, J. R. Stat. Soc. B 14:107 (1952).
    """
    return w.mean(w.cases.log_loss)


def brier_of(w: Weighted) -> float:
    """Mean squared error (p - y)^2 of the probability.

    References:
        Brier, Verification of forecasts expressed in terms of probability, Mon. Weather Rev. 78:1 (1950).
    """
    return w.mean((w.cases.prob - w.cases.label) ** 2)


def brier_skill_of(w: Weighted) -> float:
    """1 - Brier / (pi (1 - pi)), pi the share of positive images: 0 for a forecast of pi, NaN with one class.

    References:
        Murphy, A new vector partition of the probability score, J. Appl. Meteorol. 12:595 (1973).
    """
    variance = w.positives * w.negatives / w.total**2
    return 1 - brier_of(w) / variance if variance > 0 else np.nan


def accuracy_gain_of(w: Weighted) -> float:
    """Accuracy minus that of giving every image the larger class."""
    return accuracy_of(w) - max(w.positives, w.negatives) / w.total


def sensitivity_of(w: Weighted) -> float:
    """Share TP / (TP + FN) of positive images that are positive by the model; NaN without positives.

    References:
        Altman and Bland, Diagnostic tests 1: sensitivity and specificity, BMJ 308:1552 (1994).
    """
    return _ratio(float(w.positive @ w.cases.called), w.positives)


def specificity_of(w: Weighted) -> float:
    """Share TN / (TN + FP) of negative images that are negative by the model; NaN without negatives.

    References:
        Altman and Bland, Diagnostic tests 1: sensitivity and specificity, BMJ 308:1552 (1994).
    """
    return _ratio(float(w.negative @ ~w.cases.called), w.negatives)


def right_counts(w: Weighted) -> tuple[Bools, Floats]:
    """Return what the accuracy counts: correct predictions (N,) of all mass (N,)."""
    return ~w.cases.error, w.weight


def sensitivity_counts(w: Weighted) -> tuple[Bools, Floats]:
    """Return what the sensitivity counts: images called positive (N,) of the positive mass (N,)."""
    return w.cases.called, w.positive


def specificity_counts(w: Weighted) -> tuple[Bools, Floats]:
    """Return what the specificity counts: images called negative (N,) of the negative mass (N,)."""
    return ~w.cases.called, w.negative


def ranked_classes(w: Weighted) -> tuple[Floats, Floats, Floats]:
    """Return what the AUROC ranks: the probability, and the mass of the positive and of the negative images, all (N,)."""
    return w.cases.prob, w.positive, w.negative


def auroc_of(w: Weighted) -> float:
    """Area under the ROC curve of the probability: P(a positive image ranks higher) + P(tie) / 2.

    References:
        Hanley and McNeil, The meaning and use of the area under a receiver operating characteristic (ROC) curve, Radiology
        143:29 (1982).
    """
    return ranked_auroc(w.cases.by_prob, w.positive, w.negative)


def auprc_of(w: Weighted) -> float:
    """Average precision of the probability: sum over thresholds of the gain in sensitivity times the precision.

    References:
        Davis and Goadrich, The relationship between precision-recall and ROC curves, ICML (2006).
    """
    return ranked_average_precision(w.cases.by_prob, w.positive, w.negative)


# ------------------------------------------------------------------------------- from a ranking


def ranked_auroc(ranking: RankedImages, positive: Floats, negative: Floats) -> float:
    """Return the AUROC of any score.

    Args:
        ranking: The N images, ranked by the score.
        positive: (N,) mass of the positive images.
        negative: (N,) mass of the negative images.

    Returns:
        The area; NaN where one class has no mass.
    """
    hit, false = ranking.cumulate(positive), ranking.cumulate(negative)
    if hit[-1] <= 0 or false[-1] <= 0:
        return np.nan
    before = np.concatenate(([0.0], hit[:-1]))
    return float(np.diff(false, prepend=0.0) @ (hit + before) / (2 * hit[-1] * false[-1]))


def ranked_average_precision(ranking: RankedImages, positive: Floats, negative: Floats) -> float:
    """Return the average precision of any score: a step sum, because the trapezoid is too high between points.

    Args:
        ranking: The N images, ranked by the score.
        positive: (N,) mass of the positive images.
        negative: (N,) mass of the negative images.

    Returns:
        The average precision; NaN without positive mass.

    References:
        Davis and Goadrich, The relationship between precision-recall and ROC curves, ICML 2006.
    """
    hit, false = ranking.cumulate(positive), ranking.cumulate(negative)
    if hit[-1] <= 0:
        return np.nan
    called = hit + false
    precision = np.divide(hit, called, out=np.zeros_like(hit), where=called > 0)
    return float(np.diff(hit, prepend=0.0) @ precision / hit[-1])


# ------------------------------------------------------------------------------------ ROC curve


@dataclass(frozen=True)
class Roc:
    """Points (G+1,) from (0, 0) to (1, 1): positive by the model where score >= threshold; the first is +inf."""

    false_positive_rate: Floats
    sensitivity: Floats
    threshold: Floats


def roc_curve(label: ArrayLike, prob: ArrayLike, weight: ArrayLike | None = None) -> Roc:
    """Return every exact point of the ROC curve, one per distinct probability.

    Args:
        label: (N,) 0 or 1.
        prob: (N,) P(label = 1).
        weight: (N,) images that each row stands for; None: 1 each.

    Returns:
        The curve, from (0, 0) to (1, 1).

    Raises:
        InputError: One class is missing, and the curve is not defined.
    """
    w = _weighted(label, prob, weight)
    if w.positives <= 0 or w.negatives <= 0:
        raise InputError("an ROC curve needs images of both classes", column="label")
    ranking = w.cases.by_prob
    return Roc(
        np.concatenate(([0.0], ranking.cumulate(w.negative) / w.negatives)),
        np.concatenate(([0.0], ranking.cumulate(w.positive) / w.positives)),
        np.concatenate(([np.inf], ranking.values)),
    )


def sensitivity_on_chords(curve: Roc, rates: ArrayLike) -> Floats:
    """Return the sensitivity of a curve at false-positive rates, on the chords between its points.

    Args:
        curve: The curve.
        rates: (G,) false-positive rates.

    Returns:
        (G,) sensitivities; at a jump of the curve its upper end.
    """
    x = np.asarray(rates, np.float64)
    rate, sensitivity = curve.false_positive_rate, curve.sensitivity
    last = np.append(np.flatnonzero(np.diff(rate)), len(rate) - 1)  # the top of every vertical piece
    first = np.append(0, last[:-1] + 1)  # its foot
    right = np.searchsorted(rate[last], x, side="left").clip(max=len(last) - 1)
    left = np.maximum(right - 1, 0)
    span = rate[last[right]] - rate[last[left]]
    part = np.divide(x - rate[last[left]], span, out=np.ones(len(x)), where=span > 0)
    between = sensitivity[last[left]] + part * (sensitivity[first[right]] - sensitivity[last[left]])
    return np.asarray(np.where(x >= rate[last[right]], sensitivity[last[right]], between))


def sensitivity_within(w: Weighted, rates: Floats) -> Floats:
    """Return the highest sensitivity that a threshold reaches within each false-positive rate.

    Args:
        w: The weighted images.
        rates: (G,) false-positive rates.

    Returns:
        (G,) sensitivities on the steps of the ROC curve, without interpolation; NaN where one class is missing.
    """
    if not (w.positives and w.negatives):
        return np.full(len(rates), np.nan)
    ranking = w.cases.by_prob
    false = np.concatenate([[0.0], ranking.cumulate(w.negative) / w.negatives])
    hit = np.concatenate([[0.0], ranking.cumulate(w.positive) / w.positives])
    return np.asarray(hit[np.searchsorted(false, rates + 1e-12, side="right") - 1])


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else np.nan
