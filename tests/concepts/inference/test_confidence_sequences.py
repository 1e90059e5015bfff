"""Confidence sequences: the formulas by brute force, and exact coverage by dynamic programming with a look after every answer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from retinabench.concepts.inference.confidence_sequences import bank_sequence, needed, new_sequence


def log_mixture(k, n):
    """P(answers in their order) with p ~ Beta(1/2, 1/2), by numerical integration over p = sin^2 x."""
    value = integrate.quad(
        lambda x: np.sin(x) ** (2 * k) * np.cos(x) ** (2 * (n - k)) * 2 / np.pi, 0, np.pi / 2
    )
    return math.log(value[0])


@pytest.mark.parametrize(("k", "n"), [(0, 5), (9, 12), (16, 16), (41, 50)])
def test_new_samples_by_integration_and_root_finding(k, n):
    limit = log_mixture(k, n) + math.log(0.05)

    def excess(p):
        return special.xlogy(k, p) + special.xlogy(n - k, 1 - p) - limit

    low, high = new_sequence(k, n, 0.05)
    assert low == pytest.approx(optimize.brentq(excess, 1e-9, k / n) if k else 0.0, abs=1e-9)
    assert high == pytest.approx(optimize.brentq(excess, k / n, 1 - 1e-9) if k < n else 1.0, abs=1e-9)


def order_probability(total, right, asked, of):
    """P(one order of the answers | K = total): the hypergeometric probability over the number of orders."""
    return stats.hypergeom.pmf(right, of, total, asked) / math.comb(asked, right)


@pytest.mark.parametrize(
    ("k", "n", "of"), [(0, 0, 7), (3, 5, 20), (0, 9, 30), (28, 30, 41), (40, 40, 41), (17, 20, 20)]
)
def test_the_bank_by_trying_every_number(k, n, of):
    mixture = sum(
        stats.betabinom.pmf(total, of, 0.5, 0.5) * order_probability(total, k, n, of)
        for total in range(of + 1)
    )
    assert math.log(mixture) == pytest.approx(log_mixture(k, n), abs=1e-8)
    held = [total for total in range(of + 1) if order_probability(total, k, n, of) > 0.05 * mixture]
    assert held == list(range(held[0], held[-1] + 1))
    assert bank_sequence(k, n, of, 0.05) == (held[0] / of, held[-1] / of)


def missed_ever(ends, of, chance):
    """Exact probability that a sequence ever misses: `chance(asked, right)` of a correct answer, `ends[n][k]` whether it holds."""
    alive, missed = {0: 1.0}, 0.0
    for asked in range(of):
        following: dict[int, float] = {}
        for right, weight in alive.items():
            p = chance(asked, right)
            for more, q in ((1, p), (0, 1 - p)):
                if q > 0 and ends[asked + 1][right + more]:
                    following[right + more] = following.get(right + more, 0.0) + weight * q
                elif q > 0:
                    missed += weight * q
        alive = following
    return missed


def test_the_exact_coverage_with_a_look_after_every_answer():
    """Over every bank of 40 samples and a grid of rates: at most 5 % ever miss, and some come near it."""
    of, alpha = 40, 0.05
    bank = [[bank_sequence(k, n, of, alpha) for k in range(n + 1)] for n in range(of + 1)]
    missed = []
    for total in range(of + 1):
        held = [[low * of - 1e-9 <= total <= high * of + 1e-9 for low, high in row] for row in bank]
        possible = [[k <= total and n - k <= of - total for k in range(n + 1)] for n in range(of + 1)]
        assert any(held[n][k] for n in (of,) for k in range(n + 1) if possible[n][k])
        missed.append(missed_ever(held, of, lambda asked, right, total=total: (total - right) / (of - asked)))
    assert max(missed) <= alpha
    assert max(missed) > 0.015
    new = [[new_sequence(k, n, alpha) for k in range(n + 1)] for n in range(of + 1)]
    rates = (0.02, 0.1, 0.3, 0.5, 0.85, 0.95)
    missed = [
        missed_ever([[low <= p <= high for low, high in row] for row in new], of, lambda asked, right, p=p: p)
        for p in rates
    ]
    assert max(missed) <= alpha
    assert max(missed) > 0.01


def test_ends_and_symmetry():
    assert new_sequence(0, 0, 0.05) == bank_sequence(0, 0, 9, 0.05) == (0.0, 1.0)
    low, high = new_sequence(3, 11, 0.01)
    assert new_sequence(8, 11, 0.01) == pytest.approx((1 - high, 1 - low), abs=1e-12)
    assert bank_sequence(17, 20, 20, 0.05) == (0.85, 0.85)
    # A small part of a large bank is like new samples.
    assert bank_sequence(9, 12, 10**7, 0.05) == pytest.approx(new_sequence(9, 12, 0.05), abs=1e-5)


def test_the_number_needed_is_the_smallest_that_suffices():
    for goal, alpha in ((0.5, 0.05), (0.85, 0.05), (0.85, 0.05 / 28), (0.99, 0.05)):
        least = needed(goal, alpha)
        assert new_sequence(least, least, alpha).low >= goal > new_sequence(least - 1, least - 1, alpha).low
