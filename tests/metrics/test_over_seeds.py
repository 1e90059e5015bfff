from itertools import combinations

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.metrics.paired import aggregate, mean_over_subsets


def test_aggregate():
    found = aggregate([1.0, 2.0, 4.0])
    assert found.mean == pytest.approx(7 / 3)
    assert found.error == pytest.approx(np.std([1, 2, 4], ddof=1) / np.sqrt(3))
    assert np.isnan(aggregate([1.0, None]).mean)
    assert np.isnan(aggregate([1.0]).error)
    with pytest.raises(InputError, match="no runs"):
        aggregate([])


def test_single_runs_have_the_usual_standard_error():
    values = [0.1, 0.4, 0.2, 0.9]
    found = mean_over_subsets(values, [(k,) for k in range(4)], 4)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.error == pytest.approx(np.std(values, ddof=1) / 2)
    published = mean_over_subsets(values, [(k,) for k in range(4)], 4, "published")
    assert published.error == pytest.approx(np.std(values) / 2)


def test_ensembles_of_means_have_the_error_of_the_mean_of_their_members():
    """An ensemble whose value is the mean of its members' tells nothing new: the closed form is s / sqrt(n)."""
    x = np.random.default_rng(1).normal(size=6)
    every = list(combinations(range(6), 3))
    found = mean_over_subsets([x[list(s)].mean() for s in every], every, 6)
    assert found.mean == pytest.approx(x.mean())
    assert found.error == pytest.approx(x.std(ddof=1) / np.sqrt(6))


def test_the_error_covers_what_other_seeds_would_give():
    """A maximum over three members, six seeds, 600 studies: the squared error's mean is near the true variance. The jackknife of a
    U-statistic is not biased downwards (Efron & Stein), and for a mildly curved one not by much upwards; the naive error is. Seed
    2; the standard error of the mean of 600 variances is about 3 %."""
    random = np.random.default_rng(2)
    every = list(combinations(range(6), 3))
    means, squares, naive = [], [], []
    for _ in range(600):
        x = random.uniform(size=6)
        values = [x[list(s)].max() for s in every]
        found = mean_over_subsets(values, every, 6)
        means.append(found.mean)
        squares.append(found.error**2)
        naive.append(np.var(values, ddof=1) / 20)
    true = np.var(means)
    assert 0.9 < np.mean(squares) / true < 1.5
    assert np.mean(naive) / true < 0.5


def test_without_a_seed_to_leave_out_or_a_value_there_is_no_error():
    assert np.isnan(mean_over_subsets([0.5], [(0, 1, 2)], 3).error)
    every = list(combinations(range(4), 3))
    assert np.isnan(mean_over_subsets([0.5, None, 0.5, 0.5], every, 4).mean)
    # Of draws that are not all subsets the jackknife knows nothing.
    assert np.isnan(mean_over_subsets([0.5, 0.6], every[:2], 4).error)


def test_subsets_that_share_no_seed_are_independent():
    found = mean_over_subsets([0.5, 0.6, 0.8], [(0, 1, 2), (3, 4, 5), (6, 7, 8)], 9)
    assert found.error == np.std([0.5, 0.6, 0.8], ddof=1) / np.sqrt(3)
