"""Intervals on the scale of the bounds, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

from retinabench.metrics.inference.scaled import scaled_interval, t_test

INFINITE = np.inf


@pytest.mark.parametrize(
    ("bounds", "scale", "slope", "back"),
    [
        ((0, 1), logit, lambda x: 1 / (x * (1 - x)), expit),
        ((0, INFINITE), np.log, lambda x: 1 / x, np.exp),
        ((-INFINITE, 1), lambda x: -np.log(1 - x), lambda x: 1 / (1 - x), lambda z: 1 - np.exp(-z)),
        ((-INFINITE, INFINITE), lambda x: x, lambda x: 1, lambda z: z),
    ],
)
def test_the_interval_is_symmetric_on_its_scale(bounds, scale, slope, back):
    value, error, degrees = 0.9, 0.03, 7
    half = stats.t.ppf(0.95, degrees) * error * slope(value)
    expected = [back(scale(value) - half), back(scale(value) + half)]
    assert scaled_interval(value, error, bounds, degrees, 0.9) == pytest.approx(expected)


def test_without_an_error_or_degrees_there_is_none():
    for error, degrees in ((0.0, 9), (np.nan, 9), (0.1, 0)):
        assert np.isnan(scaled_interval(0.5, error, (0.0, 1.0), degrees)).all()
    assert scaled_interval(1.0, 0.1, (0.0, 1.0), 9)[1] == 1.0


def test_the_p_value_is_student_s():
    assert t_test(0.2, 0.1, 5) == pytest.approx(2 * stats.t.sf(2, 5))
    assert t_test(0.0, 0.0, 5) == 1.0
    assert np.isnan(t_test(0.1, 0.0, 5))
