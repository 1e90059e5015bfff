"""Batched averages against their formulas on repeated images."""

import numpy as np
import pytest
from sklearn import metrics

from retinabench.metrics.batched import averages
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
    np.testing.assert_allclose(getattr(averages, name)(batch), expected, rtol=1e-12)
