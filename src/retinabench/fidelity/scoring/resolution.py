"""What a fidelity task can tell apart: the places of its entries, and the difference that it would resolve.

Pairs are tested by `metrics.comparison` over replicates, which hold the same test points and chains for all entries, and seeds; the
p-values of all pairs and measures of a task are corrected by Holm together. An entry with one seed has the mean variance over seeds of
the five with several whose values are nearest to its own: those that are far from the reference vary more.

References:
    Johnson & Welch 1940, "Applications of the non-central t-distribution", for the power.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.metrics.intervals import replicate_error
from retinabench.metrics.p_values import holm, t_test
from retinabench.metrics.paired import PairTest, Side, mean_difference, places, seed_effects

Floats = NDArray[np.float64]
LEVEL = 0.05
POWER = 0.8


@dataclass(frozen=True)
class Contest:
    """A measure of all entries of a task: whether higher values are better, and the side of each entry."""

    higher: bool
    sides: Sequence[Side]

    @classmethod
    def of(
        cls, higher: bool, values: Sequence[Floats], draws: Sequence[Floats], seeds: Sequence[Sequence[int | None]]
    ) -> Contest:
        """Return the contest of entries with values of their seeds (S,), replicates of their mean (R,), and the numbers of their seeds."""
        sides = []
        for k, (own, of_mean, numbers) in enumerate(zip(values, draws, seeds, strict=True)):
            known = None not in numbers and len(set(numbers)) == len(numbers)
            labels = [(number,) if known else ((k, m),) for m, number in enumerate(numbers)]
            sides.append(Side(own, of_mean, seed_effects(own, labels)))
        several = [own for own in values if len(own) > 1]
        sides = [side if side.effects else replace(side, spread=_variance_near(side, several)) for side in sides]
        return cls(higher, sides)


NEIGHBOURS = 5  # entries with several seeds whose variance a lone seed takes


def _variance_near(side: Side, several: Sequence[Floats]) -> tuple[float, float]:
    """Return the variance over seeds, and its degrees of freedom, of the entries (S,) whose means are nearest to a lone seed's."""
    near = sorted(several, key=lambda own: abs(float(own.mean() - side.values.mean())))[:NEIGHBOURS]
    degrees = float(sum(len(own) - 1 for own in near))
    return (sum(float(own.var(ddof=1)) * (len(own) - 1) for own in near) / degrees, degrees) if near else (0.0, 1.0)


@dataclass(frozen=True)
class Resolution:
    """What a task can tell apart.

    `places` are the best and worst place of each entry, `resolved` of all `pairs` are told apart by some measure, and `detectable` is, of each
    measure, the difference of two entries that would be resolved four times in five.
    """

    places: tuple[tuple[int, int], ...]
    resolved: int
    pairs: int
    detectable: tuple[float, ...]


def resolve(contests: Sequence[Contest]) -> Resolution:
    """Compare all pairs of entries by all measures of a task."""
    entries = len(contests[0].sides)
    pairs = list(combinations(range(entries), 2))
    tests = [
        [mean_difference(contest.sides[a], contest.sides[b], len(contest.sides[a].draws) - 1.0) for a, b in pairs]
        for contest in contests
    ]
    corrected = holm([test.p for of in tests for test in of]).reshape(len(contests), len(pairs))
    better = np.zeros((entries, entries), bool)
    for contest, of, adjusted in zip(contests, tests, corrected.tolist(), strict=True):
        for (a, b), test, p in zip(pairs, of, adjusted, strict=True):
            if p < LEVEL:
                better[(a, b) if (test.difference > 0) == contest.higher else (b, a)] = True
    better &= ~better.T  # measures that contradict each other resolve nothing
    detectable = tuple(_detectable(of, len(contests) * len(pairs)) for of in tests)
    return Resolution(tuple(places(better)), int(better.sum()), len(pairs), detectable)


def places_of_ranks(ranks: Floats) -> tuple[tuple[int, int], ...]:
    """Return best and worst places by mean ranks in replicates (R, E), pairs corrected by Holm."""
    better, pairs = np.zeros((ranks.shape[1],) * 2, bool), list(combinations(range(ranks.shape[1]), 2))
    if len(ranks) > 1:
        differences = [ranks[:, a] - ranks[:, b] for a, b in pairs]
        p = [t_test(float(each.mean()), replicate_error(each), np.inf) for each in differences]
        for (a, b), each, adjusted in zip(pairs, differences, holm(p).tolist(), strict=True):
            if adjusted < LEVEL:
                better[(a, b) if each.mean() < 0 else (b, a)] = True
    return tuple(places(better))


def _detectable(tests: Sequence[PairTest], count: int) -> float:
    """Return the median over pairs of the difference that would be resolved with `POWER` by the first step of Holm's test."""
    found = []
    for test in (test for test in tests if np.isfinite(test.error) and test.degrees >= 1):
        critical, degrees, z = stats.t.ppf(1 - LEVEL / 2 / count, test.degrees), test.degrees, stats.norm.ppf(POWER)
        # The difference, in its standard errors, whose t exceeds the critical value with `POWER`, the error being estimated.
        wanted = critical * (1 - 1 / (4 * degrees)) + z * np.sqrt(1 + critical**2 / (2 * degrees))
        found.append(test.error * float(wanted))
    return float(np.median(found)) if found else float("nan")
