"""The referral threshold that follows from a rate: on validation, without ties broken, stated where it fell on test images."""

from __future__ import annotations

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.referral_rule import referral_rule


def given(uncertainty, split="test"):
    n = len(uncertainty)
    return rb.Predictions(
        np.arange(n), np.arange(n) % 2, np.full(n, 0.4), uncertainty=uncertainty, split=[split] * n
    )


def rule(predictions, threshold=None, rate=None):
    return referral_rule(predictions, "auto", 0.5, threshold=threshold, rate=rate)


def test_a_rate_refers_at_most_that_share():
    values = np.array([0.1, 0.5, 0.5, 0.9, 0.7])
    for rate, most in (
        (0.0, 0),
        (0.2, 1),
        (0.4, 2),
        (0.6, 2),
        (0.8, 4),
        (1.0, 5),
    ):  # the two ties go together
        found = rule(given(values), rate=rate)
        assert found.refers(values).sum() == most
    assert (found.chosen_on, found.images, found.same_images, found.uncertainty) == ("test", 5, True, "own")


def test_validation_images_choose_where_there_are_any():
    both = rb.Predictions(
        np.arange(8), [0, 1] * 4, [0.4] * 8, uncertainty=[1, 2, 3, 4, 10, 20, 30, 40],
        split=["validation"] * 4 + ["test"] * 4,
    )  # fmt: skip
    found = rule(both, rate=0.25)
    assert (found.threshold, found.chosen_on) == (3, "validation")


def test_a_threshold_is_taken_as_it_is():
    assert rule(given([0.1, 0.2]), threshold=0.15).threshold == 0.15
    assert not rule(given([0.1, 0.2])).refers(np.array([1e9])).any()
    with pytest.raises(InputError, match="exclude"):
        rule(given([0.1]), threshold=0.1, rate=0.1)
    with pytest.raises(InputError, match="rate"):
        rule(given([0.1]), rate=1.5)
