"""Accuracy, discrimination, proper scores and detection of shifted images, of weighted images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from retinabench.core.errors import InputError
from retinabench.metrics import calibration
from retinabench.metrics.weighted_images import Batch, Bools, Cases, RankedImages, Weighted, cumulate, ratio

Floats = NDArray[np.float64]


def _weighted(label: ArrayLike, prob: ArrayLike, weight: ArrayLike | None) -> Weighted:
    return Cases(label, prob).weighted(weight)


# ------------------------------------------------------------------------------- from arrays


def auroc(label: ArrayLike, prob: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Return P(a positive image ranks above a negative one) + P(tie) / 2.

    Shapes: `label` (N,), `prob` (N,), `weight` (N,).
    """
    return auroc_of(_weighted(label, prob, weight))


def nll(label: ArrayLike, prob: ArrayLike, weight: ArrayLike | None = None) -> float:
    """Return the mean of -ln P(label); probabilities are clipped to [1e-15, 1 - 1e-15].

    Shapes: `label` (N,), `prob` (N,), `weight` (N,).
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

    Shapes: `positive` (N,), `negative` (N,).
    """
    hit, false = ranking.cumulate(positive), ranking.cumulate(negative)
    if hit[-1] <= 0 or false[-1] <= 0:
        return np.nan
    before = np.concatenate(([0.0], hit[:-1]))
    return float(np.diff(false, prepend=0.0) @ (hit + before) / (2 * hit[-1] * false[-1]))


def ranked_average_precision(ranking: RankedImages, positive: Floats, negative: Floats) -> float:
    """Return the average precision of any score: a step sum, because the trapezoid is too high between points.

    References:
        Davis and Goadrich, The relationship between precision-recall and ROC curves, ICML 2006.

    Shapes: `positive` (N,), `negative` (N,).
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

    Shapes: `label` (N,), `prob` (N,), `weight` (N,).
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

    Shapes: `rates` (G,), returns (G,).
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

    Shapes: `rates` (G,), returns (G,).
    """
    if not (w.positives and w.negatives):
        return np.full(len(rates), np.nan)
    ranking = w.cases.by_prob
    false = np.concatenate([[0.0], ranking.cumulate(w.negative) / w.negatives])
    hit = np.concatenate([[0.0], ranking.cumulate(w.positive) / w.positives])
    return np.asarray(hit[np.searchsorted(false, rates + 1e-12, side="right") - 1])


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole > 0 else np.nan


def accuracy(batch: Batch) -> Floats:
    """(R,) `classification.accuracy_of`."""
    return batch.mean(~batch.cases.error)


def nll_of_overall(batch: Batch) -> Floats:
    """(R,) `classification.nll_of`."""
    return batch.mean(batch.cases.log_loss)


def brier(batch: Batch) -> Floats:
    """(R,) `classification.brier_of`."""
    return batch.mean((batch.cases.prob - batch.cases.label) ** 2)


def brier_skill(batch: Batch) -> Floats:
    """(R,) `classification.brier_skill_of`."""
    return 1 - ratio(brier(batch), batch.positives * batch.negatives / batch.total**2)


def accuracy_gain(batch: Batch) -> Floats:
    """(R,) `classification.accuracy_gain_of`."""
    return accuracy(batch) - np.maximum(batch.positives, batch.negatives) / batch.total


def sensitivity(batch: Batch) -> Floats:
    """(R,) `classification.sensitivity_of`."""
    return ratio(batch.sum(batch.cases.label & ~batch.cases.error), batch.positives)


def specificity(batch: Batch) -> Floats:
    """(R,) `classification.specificity_of`."""
    return ratio(batch.sum(~batch.cases.label & ~batch.cases.error), batch.negatives)


def ece_top_label(batch: Batch) -> Floats:
    """(R,) `binned.ece_top_label_of`."""
    return _expected_error(batch, batch.cases.index(_top_label_gaps))


def ece_positive_class(batch: Batch) -> Floats:
    """(R,) `binned.ece_positive_class_of`."""
    return _expected_error(batch, batch.cases.index(_positive_class_gaps))


def _expected_error(batch: Batch, gaps: sparse.csr_array) -> Floats:
    """Sum over bins of |sum of w (observed - forecast)| / W."""
    of_bins = np.ascontiguousarray(np.abs(gaps @ batch.weight.T).T)
    return np.asarray(of_bins.sum(axis=1) / batch.total)


def _top_label_gaps(cases: Cases) -> sparse.csr_array:
    return _gaps(cases, "top_label")


def _positive_class_gaps(cases: Cases) -> sparse.csr_array:
    return _gaps(cases, "positive_class")


def _gaps(cases: Cases, of: calibration.Of) -> sparse.csr_array:
    """(bins, N) observed - forecast of each image, in the row of its bin."""
    forecast, observed = calibration.judged(cases, of)
    number = calibration.width_bin(forecast, calibration.BINS)
    values = (observed - forecast, (number, np.arange(len(cases))))
    return sparse.csr_array(values, shape=(calibration.BINS, len(cases)))


Index = NDArray[np.integer[Any]]


def auroc_of_overall(batch: Batch) -> Floats:
    """(R,) `classification.auroc_of`."""
    classes = batch.cases.index(_classes)
    hit = cumulate(np.take(batch.by_prob, classes.positive, axis=1))
    pairs = np.take(hit, classes.above, axis=1)
    pairs += np.take(hit, classes.through, axis=1)
    pairs *= np.take(batch.by_prob, classes.negative, axis=1)
    return ratio(pairs.sum(axis=1) / 2, batch.positives * batch.negatives)


def auprc(batch: Batch) -> Floats:
    """(R,) `classification.auprc_of`."""
    classes = batch.cases.index(_classes)
    hit = np.take(cumulate(np.take(batch.by_prob, classes.positive, axis=1)), classes.step, axis=1)
    called = np.take(cumulate(batch.by_prob), classes.called, axis=1)
    gain = np.diff(hit, axis=1, prepend=0.0)
    precision = np.divide(hit, called, out=np.zeros_like(hit), where=called > 0)
    return ratio((gain * precision).sum(axis=1), batch.positives)


def ood_auroc(batch: Batch) -> Floats:
    """(R,) `shift.ood_auroc_of`."""
    shifted = _shifted(batch)
    near = batch.mass - shifted
    pairs = np.diff(shifted, axis=1) * (near[:, 1:] + near[:, :-1])
    return ratio(pairs.sum(axis=1) / 2, shifted[:, -1] * near[:, -1])


def ood_auprc(batch: Batch) -> Floats:
    """(R,) `shift.ood_auprc_of`."""
    shifted = _shifted(batch)
    hit = shifted[:, -1:] - shifted[:, :-1]
    called = batch.mass[:, -1:] - batch.mass[:, :-1]
    precision = np.divide(hit, called, out=np.zeros_like(hit), where=called > 0)
    return ratio((np.diff(shifted, axis=1) * precision).sum(axis=1), shifted[:, -1])


def _shifted(batch: Batch) -> Floats:
    """(R, B+1) mass of shifted images in the blocks before; 0 outside joint sets."""
    if batch.cases.shifted is None:
        return np.zeros_like(batch.mass)
    return batch.block_sums(batch.weight * batch.cases.shifted)


@dataclass(frozen=True)
class _Classes:
    """Places in the order of falling probability, equal probabilities being one step.

    positive (P,) and negative: where the images of each class stand. above, through: for each negative image the number of
    positive ones above it, and with those tied to it. step, called: for each step with a positive image the number of positive ones, and of
    all images, down to its end.
    """

    positive: Index
    negative: Index
    above: Index
    through: Index
    step: Index
    called: Index


def _classes(cases: Cases) -> _Classes:
    ranking = cases.by_prob
    label = cases.label[ranking.order]
    starts = np.append(0, ranking.ends[:-1] + 1)
    group = np.repeat(np.arange(len(starts)), ranking.ends + 1 - starts)
    before = np.append(0, np.cumsum(label))
    first, last = before[starts], before[ranking.ends + 1]
    negative = np.flatnonzero(~label)
    held = last > first
    return _Classes(
        np.flatnonzero(label),
        negative,
        first[group[negative]],
        last[group[negative]],
        last[held],
        ranking.ends[held] + 1,
    )


EYEPACS_TEST = np.array([31_403, 3_042, 6_282, 977, 966]) / 42_670  # grades 0 to 4, counted in the label file


def ood_auroc_of(w: Weighted) -> float:
    """P(a shifted image is more uncertain than an in-domain one) + P(tie) / 2; NaN outside joint sets.

    References:
        Hendrycks and Gimpel, A baseline for detecting misclassified and out-of-distribution examples in neural networks,
        ICLR (2017).
    """
    _, there, here = ranked_domains(w)
    return ranked_auroc(w.cases.by_uncertainty, there, here)


def ood_auprc_of(w: Weighted) -> float:
    """Average precision of the uncertainty as a detector of shifted images; its chance level is their share.

    References:
        Hendrycks and Gimpel, A baseline for detecting misclassified and out-of-distribution examples in neural networks,
        ICLR (2017).
    """
    _, there, here = ranked_domains(w)
    return ranked_average_precision(w.cases.by_uncertainty, there, here)


def ranked_domains(w: Weighted) -> tuple[Floats, Floats, Floats]:
    """Return what tells the domains apart: the uncertainty, and the mass of shifted and of in-domain images, all (N,)."""
    shifted = np.zeros(len(w.cases), bool) if w.cases.shifted is None else w.cases.shifted
    return w.cases.uncertainty, w.weight * shifted, w.weight * ~shifted


def balanced_weight(shifted: NDArray[np.bool_], weight: Floats | None = None) -> Floats:
    """(N,) weights that give both domains the same mass: shifted images count (mass in domain) / (mass shifted) fold.

    weight: (N,) multiplicities to start from, such as those of a bootstrap replicate, or (R, N), each row by itself. The
    result is NaN in all places of a row where one domain has no mass. No image is drawn at random: a score of the balanced
    set is a function of the predictions. Replaces the random duplication of the published protocol, see `docs/deviations.md`.
    """
    weight = np.ones(len(shifted)) if weight is None else weight
    here, there = (
        np.compress(part, weight, axis=-1).sum(axis=-1, keepdims=True) for part in (~shifted, shifted)
    )
    factor = np.divide(here, there, out=np.full(here.shape, np.nan), where=(here > 0) & (there > 0))
    return np.where(shifted, weight * factor, np.where(np.isnan(factor), np.nan, weight))


def grade_weight(grade: ArrayLike, proportion: ArrayLike = EYEPACS_TEST) -> Floats:
    """(N,) weights that give the grades 0 … 4 these proportions, total N: APTOS as if graded like EyePACS.

    The exact form of the resampling with replacement of the published protocol (paper B.5): its expectation, without
    the random draw. A grade that is missing here leaves its share to the others. Raises `InputError` for a grade
    without proportion.
    """
    g, share = np.asarray(grade, np.intp), np.asarray(proportion, np.float64)
    if g.min() < 0 or g.max() >= len(share):
        raise InputError(
            f"grades {g.min()} to {g.max()} where proportions are for 0 to {len(share) - 1}", column="grade"
        )
    count = np.bincount(g, minlength=len(share))
    weight = np.divide(share, count, out=np.zeros(len(share)), where=count > 0)[g]
    return np.asarray(weight * (len(g) / weight.sum()))
