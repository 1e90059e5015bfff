"""The rows of the released balanced and rebalanced sets."""

from __future__ import annotations

import numpy as np

from conftest import shared_path
from retinabench.metrics.published import resampled_rows


def golden(name):
    return np.load(shared_path("golden", "retina", f"{name}.npz"))


def test_rebalanced_aptos():
    z = golden("aptos_rebalanced")
    rows = resampled_rows.rebalanced_rows(z["in_diagnosis"], 99, size=1000)
    assert len(rows) == 997
    for name in ("names", "y_true", "y_pred", "y_pred_entropy"):
        np.testing.assert_array_equal(z[f"in_{name}"][rows], z[f"out_{name}"])


def test_balanced_rows_hold_both_domains_equally_often():
    shifted = np.array([False] * 7 + [True] * 3)
    rows = resampled_rows.balanced_rows(shifted, 0)
    assert rows[:7].tolist() == list(range(7))
    copies = np.bincount(rows[7:], minlength=10)[7:]
    assert copies.sum() == 7
    assert sorted(copies) == [2, 2, 3]  # two whole copies, and one image drawn without replacement
    np.testing.assert_array_equal(rows, resampled_rows.balanced_rows(shifted, np.random.RandomState(0)))


def test_rebalanced_rows_have_the_proportions_of_eyepacs():
    grade = np.repeat([2, 0, 4, 1, 3], 10)
    rows = resampled_rows.rebalanced_rows(grade, 0, size=1000)
    counts = np.bincount(grade[rows], minlength=5)
    assert counts.tolist() == [int(resampled_rows.EYEPACS_GRADES[g] * 1000) for g in range(5)]
