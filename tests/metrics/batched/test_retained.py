"""Numbers of the retained half against counts of repeated images; `test_batch.py` compares every weighting with the plain form."""

import numpy as np

from retinabench.metrics.batched.batch import Batch
from retinabench.metrics.batched.retained import numbers_at
from retinabench.metrics.sorted_images import Cases


def test_the_more_certain_half_of_images_without_ties():
    rng = np.random.default_rng(1)
    n = 30
    y, p, u = rng.integers(0, 2, n), rng.random(n), rng.permutation(n).astype(float)
    cases = Cases(y, p, u)
    found = numbers_at(Batch(cases, np.ones((1, n))), 0.5, 0.8)[0]
    kept, called = u < n / 2, p > 0.5
    right = called == y
    accuracy, overall = right[kept].mean(), right.mean()
    perfect = min(1, right.sum() / kept.sum())
    missed = (y[kept] & ~called[kept]).sum() / y.sum()
    negatives = np.sort(p[y == 0])[::-1]
    allowed = int(0.2 * len(negatives) + 1e-9)
    expected = [
        accuracy, accuracy - overall, (accuracy - overall) / (perfect - overall), perfect,
        called[kept][y[kept] == 1].mean(), 1 - called[kept][y[kept] == 0].mean(), y[kept].mean(), missed,
        (p[y == 1] > negatives[allowed]).mean(),
    ]  # fmt: skip
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_where_nothing_is_retained_nothing_is_known():
    cases = Cases([0, 1], [0.2, 0.9], [0.1, 0.2])
    assert np.isnan(numbers_at(Batch(cases, np.ones((1, 2))), 1.0, 0.8)).all()
