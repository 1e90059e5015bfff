"""E-processes: Ville's bound by enumeration of every sequence, and the wealth by its definition."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.monitoring.e_process import (
    BETS,
    conformal_p_values,
    drift_log_wealth,
    first_alarm,
    log_wealth,
    mean_log_wealth,
)


def wealth_by_definition(x):
    """The mean over shares and starting times, by loops."""
    remaining = [1.0] + [1 / np.log2(k + 3) for k in range(1, len(x) + 1)]
    found = []
    for t in range(1, len(x) + 1):
        owned = [
            sum((remaining[k] - remaining[k + 1]) * np.prod(1 + bet * x[k:t]) for k in range(t))
            for bet in BETS
        ]
        found.append(np.mean(owned) + remaining[t])
    return np.log(found)


def test_the_wealth_is_the_mean_over_shares_and_starting_times():
    x = np.random.default_rng(0).uniform(-1, 3, 40)
    np.testing.assert_allclose(log_wealth(x), wealth_by_definition(x), rtol=0, atol=1e-12)
    np.testing.assert_allclose(log_wealth(np.stack([x, -x / 3]))[0], log_wealth(x), atol=1e-12)


@pytest.mark.parametrize("goal", [0.05, 0.2, 0.5])
def test_villes_bound_holds_by_enumeration_of_all_sequences(goal):
    """14 patients, wrong with probability `goal`: every one of 16,384 histories with its probability."""
    wrong = np.array(list(product([0, 1], repeat=14)))
    chance = np.prod(np.where(wrong, goal, 1 - goal), axis=1)
    wealth = log_wealth((wrong - goal) / goal)
    np.testing.assert_allclose(chance @ np.exp(wealth), 1, rtol=0, atol=1e-9)  # a martingale at every time
    for level in (0.5, 0.2, 0.1, 0.05, 0.01):
        assert chance[wealth.max(axis=1) >= -np.log(level)].sum() <= level


def test_every_increment_at_its_least_leaves_some_wealth_and_nothing_overflows():
    lost = log_wealth(np.full(1000, -1.0))
    assert np.isfinite(lost).all()
    assert np.all(np.diff(lost) < 0)
    assert np.isfinite(log_wealth(np.full(20_000, 19.0))).all()  # in logarithms: no overflow


def test_a_mean_of_e_processes_and_the_first_alarm():
    rich, poor = np.log([1.0, 30.0, 50.0]), np.log([1.0, 0.5, 0.1])
    np.testing.assert_allclose(np.exp(mean_log_wealth([rich, poor])), [1, 15.25, 25.05])
    assert first_alarm(rich, 0.05) == 1
    assert first_alarm(poor, 0.05) is None


def test_an_increment_below_minus_one_is_refused():
    with pytest.raises(InputError, match="below -1"):
        log_wealth([0.0, -1.5])


def test_conformal_p_values_by_their_definition_with_ties():
    reference, values = [1.0, 2.0, 2.0], [2.0, 5.0, 0.0]
    u = np.random.default_rng([7, 0xC0DF]).random(3)
    expected = [(0 + u[0] * 3) / 4, (0 + u[1]) / 5, (5 + u[2]) / 6]
    np.testing.assert_allclose(conformal_p_values(reference, values, seed=7), expected)


def test_exchangeable_values_give_uniform_and_uncorrelated_p_values():
    """2,000 values with ties, seed 3: Kolmogorov-Smirnov below its 0.1 % point, lag correlation below 4 standard errors."""
    rng = np.random.default_rng(3)
    p = conformal_p_values(rng.integers(0, 30, 50), rng.integers(0, 30, 2000), seed=1)
    assert stats.kstest(p, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(p[1:], p[:-1])[0, 1]) < 4 / np.sqrt(2000)


def test_drift_alarms_rarely_without_a_drift_and_soon_with_one():
    """300 streams of 400 after 200 reference patients at level 10 %: the standard error of a share of 10 % is 1.7 points."""
    rng = np.random.default_rng(4)
    false = found = 0
    for study in range(300):
        values = rng.normal(size=600)
        false += (
            first_alarm(drift_log_wealth(conformal_p_values(values[:200], values[200:], study)), 0.1)
            is not None
        )
        values[350:] += 0.8
        found += (
            first_alarm(drift_log_wealth(conformal_p_values(values[:200], values[200:], study)), 0.1)
            is not None
        )
    assert false / 300 <= 0.1 + 3 * 0.017
    assert found / 300 >= 0.95
