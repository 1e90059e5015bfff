"""Batched scores of all images of a set: those that are ratios of weighted sums, AUROC and average precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from retinabench.metrics.batched.batch import Batch, cumulate, ratio
from retinabench.metrics.calibration import binned
from retinabench.metrics.sorted_images import Cases

Floats = NDArray[np.float64]


def accuracy(batch: Batch) -> Floats:
    """(R,) `classification.accuracy_of`."""
    return batch.mean(~batch.cases.error)


def nll(batch: Batch) -> Floats:
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


def _gaps(cases: Cases, of: binned.Of) -> sparse.csr_array:
    """(bins, N) observed - forecast of each image, in the row of its bin."""
    forecast, observed = binned.judged(cases, of)
    number = binned.width_bin(forecast, binned.BINS)
    values = (observed - forecast, (number, np.arange(len(cases))))
    return sparse.csr_array(values, shape=(binned.BINS, len(cases)))


Index = NDArray[np.integer[Any]]


def auroc(batch: Batch) -> Floats:
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
