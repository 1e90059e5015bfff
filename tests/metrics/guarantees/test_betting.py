"""The betting test: its level by brute force over all outcomes and by simulation, and what it is blind to."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats

from retinabench.metrics.guarantees.betting import TARGET, evidence, orders


@pytest.mark.parametrize(("goal", "patients"), [(0.3, 6), (0.5, 7), (0.15, 8)])
def test_the_mean_evidence_is_at_most_one_over_all_outcomes(goal, patients):
    """One image per patient, wrong with probability goal: the expectation over all 2^P outcomes is computed exactly."""
    wrong = np.array(list(product((0.0, 1.0), repeat=patients)))
    chance = goal ** wrong.sum(axis=1) * (1 - goal) ** (patients - wrong.sum(axis=1))
    found = evidence(wrong - goal, np.full_like(wrong, goal), 1 - goal, 0.1, orders(patients))
    assert chance @ found <= 1 + 1e-9  # less by what the capped wealth gives up
    assert chance @ (found >= 1 / 0.1) <= 0.1


def test_the_mean_is_at_most_one_for_three_outcomes():
    """X in {-0.5, 0, 1} with mean 0 or above, all 3^6 outcomes."""
    for chances in ([0.4, 0.4, 0.2], [0.5, 0.25, 0.25], [0.1, 0.5, 0.4]):
        x = np.array(list(product((-0.5, 0.0, 1.0), repeat=6)))
        chance = np.prod(np.array(chances)[(2 * np.array(x) > 0).astype(int) + (x >= 0)], axis=1)
        assert chance.sum() == pytest.approx(1)
        found = evidence(x, np.full_like(x, 0.3), 1.0, 0.2, orders(6))
        assert chance @ found <= 1 + 1e-9


def test_without_errors_it_is_the_binomial_test():
    """No error in n patients: (1 - goal)^n <= delta, up to the target of 1.25 / delta."""
    goal, delta = 0.05, 0.1
    for n in (40, 50, 60, 80):
        found = evidence(np.full((1, n), -goal), np.full((1, n), goal), 1 - goal, delta, orders(n))
        assert found[0] == pytest.approx(min((1 - goal) ** -n, TARGET / delta), rel=0.05)


def test_power_is_near_that_of_the_binomial_test():
    """200 studies of 400 images with an error rate of 2 % at goal 5 %: the SE of a difference of shares is below 3 %."""
    rng = np.random.default_rng(1)
    wrong = (rng.random((200, 400)) < 0.02).astype(float)
    ours = evidence(wrong - 0.05, np.full_like(wrong, 0.05), 0.95, 0.1, orders(400)) >= 10
    binomial = stats.binom.cdf(wrong.sum(axis=1), 400, 0.05) <= 0.1
    assert ours.mean() > binomial.mean() - 0.1
    assert binomial.mean() > 0.9


def test_patients_without_images_that_count_add_nothing():
    """Zeros among the patients change the result only through the shuffle: by brute force none of them costs money."""
    x = np.zeros((1, 30))
    assert evidence(x, x, 1.0, 0.1, orders(30))[0] == pytest.approx(1)
