"""Batched scores of all images against their formulas on repeated images."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics
from sklearn.metrics import average_precision_score, roc_auc_score

from retinabench.metrics.batched import overall
from retinabench.metrics.batched.batch import Batch
from retinabench.metrics.sorted_images import Cases
from support.repeated import weighted_and_repeated


def ece(forecast, observed):
    """Bins (k / 15, (k + 1) / 15], straight from the definition."""
    bins = np.ceil(np.round(forecast * 15, 9)).astype(int)
    return sum(abs((observed - forecast)[bins == k].sum()) for k in range(16)) / len(forecast)


FORMULAS = {
    "accuracy": lambda y, p: metrics.accuracy_score(y, p > 0.5),
    "nll": metrics.log_loss,
    "brier": metrics.brier_score_loss,
    "sensitivity": lambda y, p: metrics.recall_score(y, p > 0.5),
    "specificity": lambda y, p: metrics.recall_score(y, p > 0.5, pos_label=0),
    "ece_positive_class": lambda y, p: ece(p, y),
    "ece_top_label": lambda y, p: ece(np.maximum(p, 1 - p), (p > 0.5) == y),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_weight_is_a_number_of_copies(name):
    batch, copies = weighted_and_repeated()
    expected = [FORMULAS[name](y, p) for y, p, *_ in copies]
    np.testing.assert_allclose(getattr(overall, name)(batch), expected, rtol=1e-12)


def test_of_the_probability_and_of_the_uncertainty():
    batch, copies = weighted_and_repeated()
    for name, oracle, columns in (
        ("auroc", roc_auc_score, (0, 1)),
        ("auprc", average_precision_score, (0, 1)),
        ("ood_auroc", roc_auc_score, (3, 2)),
        ("ood_auprc", average_precision_score, (3, 2)),
    ):
        expected = [oracle(copy[columns[0]], copy[columns[1]]) for copy in copies]
        np.testing.assert_allclose(getattr(overall, name)(batch), expected, rtol=1e-12, err_msg=name)


def test_one_class_and_one_domain_are_undefined():
    cases = Cases([1, 1, 0], [0.2, 0.5, 0.7])
    batch = Batch(cases, np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])[:, cases.order])
    assert np.isnan(overall.auroc(batch)).tolist() == [True, False]
    assert np.isnan(overall.ood_auroc(batch)).all()
    assert np.isnan(overall.ood_auprc(batch)).all()
