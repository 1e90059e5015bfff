"""Means, errors and averaged curves over seeds."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.metrics import classification as c
from retinabench.metrics.inference.over_seeds import aggregate, average_roc


def test_aggregate():
    found = aggregate([1.0, 2.0, 4.0])
    assert found.mean == pytest.approx(7 / 3)
    assert found.error == pytest.approx(np.std([1, 2, 4], ddof=1) / np.sqrt(3))
    assert np.isnan(aggregate([1.0, None]).mean)
    assert np.isnan(aggregate([1.0]).error)


def test_average_roc_of_one_curve_is_the_curve():
    roc = c.roc_curve([0, 0, 1, 1, 0, 1], [0.1, 0.4, 0.35, 0.8, 0.5, 0.9])
    grid, mean, error = average_roc([roc])
    assert np.isnan(error).all()
    last = np.append(np.diff(roc.false_positive_rate) > 0, True)
    for x, y in zip(roc.false_positive_rate[last], roc.sensitivity[last], strict=True):
        found = average_roc([roc], [x])[1]
        assert found[0] == pytest.approx(y)
    assert mean[-1] == 1
    assert (np.diff(mean) >= -1e-12).all()
    tied = c.roc_curve([0, 1], [0.5, 0.5])  # one chord from (0, 0) to (1, 1)
    np.testing.assert_allclose(average_roc([tied, tied])[1], grid, atol=1e-12)


def test_curves_are_averaged_vertically():
    """At x = 0.25 one curve has 0.5 (a chord), the other 1: mean 0.75, standard error 0.25."""
    chord, jump = c.roc_curve([0, 0, 1, 1], [0.1, 0.5, 0.5, 0.9]), c.roc_curve([0, 1], [0.1, 0.9])
    _, mean, error = average_roc([chord, jump], [0.25])
    one = average_roc([chord], [0.25])[1][0]
    assert mean[0] == pytest.approx((one + 1) / 2)
    assert error[0] == pytest.approx(abs(one - 1) / 2)
    with pytest.raises(InputError, match="no runs"):
        aggregate([])
