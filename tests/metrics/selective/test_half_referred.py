"""The numbers at half referred, counted by hand."""

import numpy as np
import pytest

from retinabench.metrics.registry import SCORES
from retinabench.metrics.selective.half_referred import NAMES, numbers
from retinabench.metrics.sorted_images import Cases

LABEL = np.array([1, 0, 1, 0, 1, 0])
PROB = np.array([0.9, 0.8, 0.3, 0.2, 0.6, 0.4])
UNCERTAINTY = np.array(
    [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
)  # images 0 to 2 are retained: right, wrong (false alarm), wrong (missed)


def test_by_hand():
    found = dict(zip(NAMES, numbers(Cases(LABEL, PROB, UNCERTAINTY).weighted()), strict=True))
    assert found == pytest.approx(
        {
            "accuracy_at_50": 1 / 3,
            "gain_at_50": 1 / 3 - 4 / 6,
            "closed_at_50": (1 / 3 - 4 / 6) / (1 - 4 / 6),
            "perfect_accuracy_at_50": 1.0,
            "sensitivity_at_50": 1 / 2,
            "specificity_at_50": 0.0,
            "prevalence_at_50": 2 / 3,
            "missed_at_50": 1 / 3,
            "sensitivity_at_specificity_80": 1 / 3,
        }
    )


def test_the_registry_reads_the_same_numbers():
    w = Cases(LABEL, PROB, UNCERTAINTY).weighted()
    for name, value in zip(NAMES, numbers(w), strict=True):
        assert SCORES[name](w) == pytest.approx(value)


def test_one_image_has_none():
    assert np.isnan(numbers(Cases([1], [0.7], [0.1]).weighted())).all()
