"""Batched summaries of failure detection against brute force over pairs and retained counts of repeated images."""

from __future__ import annotations

import numpy as np

from retinabench.metrics.batched import selective
from retinabench.metrics.batched.batch import Batch
from retinabench.metrics.batched.selective import numbers_at
from retinabench.metrics.sorted_images import Cases
from support.repeated import weighted_and_repeated


def risks(wrong, uncertainty):
    """Number of wrong images among the k most certain, ties shared evenly, for k = 1 … N."""
    certain = np.sort(uncertainty)
    return [
        wrong[uncertainty < certain[k - 1]].sum()
        + wrong[uncertainty == certain[k - 1]].mean() * (k - (uncertainty < certain[k - 1]).sum())
        for k in range(1, len(wrong) + 1)
    ]


def pairs(wrong, uncertainty):
    """Pairs of an image and a wrong one that is less uncertain, ties half, over N²."""
    less = uncertainty[:, None] > uncertainty[None]
    return ((less + 0.5 * (uncertainty[:, None] == uncertainty[None])) * wrong[None]).sum() / len(wrong) ** 2


def test_pairs_of_images_and_of_right_and_wrong_ones():
    batch, copies = weighted_and_repeated()
    for row, (y, p, u, _) in enumerate(copies):
        wrong = ((p > 0.5) != y).astype(float)
        assert np.isclose(selective.augrc(batch)[row], pairs(wrong, u))
        against = u[wrong == 1][:, None], u[wrong == 0][None]
        area = np.mean((against[0] > against[1]) + 0.5 * (against[0] == against[1]))
        assert np.isclose(selective.failure_auroc(batch)[row], area)
        possible = wrong.mean() / 2 - wrong.mean() ** 2 / 2
        assert np.isclose(selective.prr(batch)[row], (wrong.mean() / 2 - pairs(wrong, u)) / possible)


def test_the_accuracy_of_the_retained_is_that_of_the_most_certain():
    batch, copies = weighted_and_repeated()
    n = len(copies[0][0])
    found = selective.accurate(batch, np.tile(np.arange(1.0, n + 1), (len(copies), 1)))
    for row, (y, p, u, _) in enumerate(copies):
        expected = 1 - np.array(risks(((p > 0.5) != y).astype(float), u)) / np.arange(1, n + 1)
        np.testing.assert_allclose(found[row], expected, atol=1e-12)


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
