"""Batched scores that are ratios of weighted sums: accuracy, NLL, Brier, sensitivity, specificity and ECE."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from retinabench.metrics.batched.batch import Batch, ratio
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
