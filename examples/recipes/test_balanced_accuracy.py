"""Balanced accuracy against scikit-learn, with weights."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score

from retinabench.metrics.balanced_accuracy import balanced_accuracy_of
from retinabench.metrics.weighted_images import Cases


@pytest.mark.parametrize("seed", range(5))
def test_it_equals_scikit_learn_s(seed):
    random = np.random.default_rng(seed)
    label, prob, weight = random.integers(0, 2, 40), random.random(40), random.random(40)
    value = balanced_accuracy_of(Cases(label, prob, prob, np.zeros(40, bool)).weighted(weight))
    assert value == pytest.approx(balanced_accuracy_score(label, prob > 0.5, sample_weight=weight), abs=1e-12)
