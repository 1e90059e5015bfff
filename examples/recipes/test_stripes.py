"""The drawn stripes."""

from __future__ import annotations

import numpy as np

from retinabench.data.datasets.stripes import read
from retinabench.data.preprocessing.preprocess import Recipe


def test_the_contrast_of_the_stripes_grows_by_ten_levels_per_grade():
    low, high = (read(f"0:0:{grade}:in_domain", None, Recipe(32)).astype(float) for grade in (0, 4))
    striped = np.arange(32) // 4 % 2 == 1
    rise = (high - low)[8:24, 8:24]  # the same noise in both
    assert abs(rise[:, striped[8:24]].mean() - 40) < 2
    assert abs(rise[:, ~striped[8:24]].mean()) < 2
