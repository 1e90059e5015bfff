r"""Confidence sequences: intervals of a rate that hold at every number of questions at once, whatever made one stop.

Of the N samples of a cell (a concept and a truth), n were asked about in random order and k answered correctly. Two rates:

- **This bank**: K / N, where K of the N samples would be answered correctly if all were asked. Samples are drawn without
  replacement, so that answers in their order have the probability

      P_K = [K]_k [N - K]_(n-k) / [N]_n,        [x]_j = x (x - 1) … (x - j + 1).

- **New samples**: p, the probability of a correct answer about a sample drawn as those of the bank were, independently of each
  other: P_p = p^k (1 - p)^(n-k).

In both cases compare with the mixture Q of all rates under Jeffreys' prior. Under the mixture of P_p by Beta(1/2, 1/2), and under
that of P_K by BetaBinomial(N, 1/2, 1/2), answers in their order have the same probability,

    Q = B(k + 1/2, n - k + 1/2) / B(1/2, 1/2).

For the true rate, M_n = Q / P is a non-negative supermartingale with M_0 = 1: given the answers so far, the next ratio
Q(answer | past) / P(answer | past) has the mean sum of Q(answer | past) over the answers that are possible, at most 1. Ville's
inequality gives P(M_n >= 1 / alpha for some n) <= alpha. The rates with M_n < 1 / alpha are an interval, since P is log-concave, and
contain the true rate for all n at once with a probability of at least 1 - alpha.

This needs two things only. The order of the samples within a cell is drawn at random, independently of the answers, and the examinee
answers a question alike whenever it is asked. The number n may then depend on anything: on the answers of this cell, on those of
other cells (even about the same images), and on the reader's patience. An interval is a function of k, n and N, so that anyone
can compute it from the counts; the intersection of the intervals after 1, 2, …, n questions would hold too, and be a little
narrower.

Several rates hold together with a probability of at least 1 - alpha if each has the level 1 - alpha / m (Bonferroni): `Level`.

References:
    Ville, Étude critique de la notion de collectif (1939).
    Robbins, Statistical methods related to the law of the iterated logarithm, Annals of Mathematical Statistics 41:1397 (1970).
    Waudby-Smith and Ramdas, Confidence sequences for sampling without replacement, NeurIPS 2020, theorem 2.1 (prior-posterior ratio).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

LOG_BETA = math.log(math.pi)  # of B(1/2, 1/2)
STEPS = 60  # halvings of [0, 1]: to 1e-18


class RateEnds(NamedTuple):
    """The ends of an interval of a rate."""

    low: float
    high: float


def bank_sequence(right: int, asked: int, of: int, alpha: float) -> RateEnds:
    """Return the interval of the rate of this bank."""
    limit = _log_mixture(right, asked) + math.log(alpha)

    def inside(total: int) -> bool:
        return _log_without_replacement(total, right, asked, of) > limit

    least, most = right, of - (asked - right)
    best = min(max((of + 1) * right // asked if asked else least, least), most)
    low = _boundary(inside, best, least)
    high = _boundary(inside, best, most)
    return RateEnds(low / of, high / of)


def new_sequence(right: float, asked: int, alpha: float) -> RateEnds:
    """Return the interval of the rate for new samples."""
    limit = _log_mixture(right, asked) + math.log(alpha)
    wrong, share = asked - right, right / asked if asked else 0.5

    def inside(p: float) -> bool:
        return _times_log(right, p) + _times_log(wrong, 1 - p) > limit

    ends = []
    for edge in (0.0, 1.0):
        inner, outer = share, edge
        for _ in range(STEPS if not inside(edge) else 0):
            middle = (inner + outer) / 2
            inner, outer = (middle, outer) if inside(middle) else (inner, middle)
        ends.append(outer)  # outside by less than 1e-17: rounding does not narrow the interval
    return RateEnds(*ends)


def needed(goal: float, alpha: float) -> int:
    """Return how many samples it takes at least until answers that are all right show a rate of `goal` for new samples."""
    low, high = 1, 2
    while new_sequence(high, high, alpha).low < goal:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if new_sequence(middle, middle, alpha).low >= goal else (middle, high)
    return high


def _boundary(inside: Callable[[int], bool], best: int, edge: int) -> int:
    """The number furthest from `best` towards `edge` that is inside; those between are inside."""
    if inside(edge):
        return edge
    inner, outer = best, edge
    while abs(outer - inner) > 1:
        middle = (inner + outer) // 2
        inner, outer = (middle, outer) if inside(middle) else (inner, middle)
    return inner


def _log_mixture(right: float, asked: int) -> float:
    """Logarithm of Q."""
    return math.lgamma(right + 0.5) + math.lgamma(asked - right + 0.5) - math.lgamma(asked + 1) - LOG_BETA


def _log_without_replacement(total: int, right: int, asked: int, of: int) -> float:
    """Logarithm of P_K with K = `total`, which leaves both numbers of answers possible."""
    wrong = asked - right
    return _log_falling(total, right) + _log_falling(of - total, wrong) - _log_falling(of, asked)


def _log_falling(x: int, j: int) -> float:
    """Logarithm of x (x - 1) … (x - j + 1)."""
    return math.lgamma(x + 1) - math.lgamma(x - j + 1)


def _times_log(count: float, p: float) -> float:
    return 0.0 if not count else count * math.log(p) if p > 0 else -math.inf
