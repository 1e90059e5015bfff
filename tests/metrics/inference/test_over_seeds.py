"""Means and errors over seeds."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.metrics.inference.over_seeds import aggregate


def test_aggregate():
    found = aggregate([1.0, 2.0, 4.0])
    assert found.mean == pytest.approx(7 / 3)
    assert found.error == pytest.approx(np.std([1, 2, 4], ddof=1) / np.sqrt(3))
    assert np.isnan(aggregate([1.0, None]).mean)
    assert np.isnan(aggregate([1.0]).error)
    with pytest.raises(InputError, match="no runs"):
        aggregate([])
