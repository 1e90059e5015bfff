"""Numbers with intervals, and how undefined ones are written."""

import math

from retinabench.metrics.inference.interval import Interval, finite_or_none


def test_undefined_numbers_become_none():
    assert [finite_or_none(x) for x in (1, 0.5, math.nan, math.inf, None)] == [1.0, 0.5, None, None, None]
    assert Interval(0.5).to_dict() == {"value": 0.5, "low": None, "high": None}
