"""Rows in another order are found by their accuracy, and nothing else is suspected."""

import numpy as np
import pytest

from retinabench.fidelity.scoring.row_order import order_doubt
from retinabench.fidelity.submissions.submission import About, Submission


@pytest.fixture
def points():
    """500 points of three classes, and probabilities that are right four times in five."""
    random = np.random.default_rng(0)
    truth = random.integers(0, 3, 500)
    named = np.where(random.random(500) < 0.8, truth, random.integers(0, 3, 500))
    return np.eye(3)[named] * 0.7 + 0.1, truth, random


def test_shuffled_rows_are_doubted_and_ordered_ones_are_not(points):
    probs, truth, random = points
    assert order_doubt(Submission(probs), probs, truth) == ""
    said = order_doubt(Submission(probs[random.permutation(500)]), probs, truth)
    assert said.startswith("its order is in doubt: an accuracy of 0.3")


def test_what_cannot_be_told_is_not_doubted(points):
    probs, truth, random = points
    shuffled = Submission(probs[random.permutation(500)])
    constant = Submission(np.tile([0.5, 0.3, 0.2], (500, 1)))
    assert order_doubt(constant, probs, truth) == ""
    assert order_doubt(shuffled, np.full((500, 3), 1 / 3), truth) == ""  # the reference itself knows nothing
    assert order_doubt(shuffled, probs, None) == ""
    counted = About(evidence={"predicted": ""}, content="0")
    assert order_doubt(Submission(shuffled.probs, about=counted), probs, truth) == ""
