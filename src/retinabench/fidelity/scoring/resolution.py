"""Which entries can be told apart, the places that follow, and the power of a task.

The variance of a difference of two entries is that of its replicates over test points and chains, which are the same for both,
and that over the seeds of each. Degrees of freedom are those of Welch and Satterthwaite; p-values of all pairs and measures of a
task are corrected by Holm. An entry with one seed has the mean variance of those with several. The best place of an entry is one
more than the number of entries that are better, resolved, and its worst leaves below it those that are worse.

References:
    Satterthwaite 1946, "An approximate distribution of estimates of variance components".
    Johnson & Welch 1940, "Applications of the non-central t-distribution", for the power.
    Holm 1979, "A simple sequentially rejective multiple test procedure".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.metrics.intervals import holm, replicate_error, t_test

Floats = NDArray[np.float64]
LEVEL = 0.05
POWER = 0.8


@dataclass(frozen=True)
class Contest:
    """A measure of all entries of a task.

    Shapes: `seeds` (S,), `replicates` (R,).
    """

    higher: bool
    seeds: Sequence[Floats]
    replicates: Sequence[Floats]


@dataclass(frozen=True)
class Resolution:
    """What a task can tell apart."""

    places: tuple[tuple[int, int], ...]
    resolved: int
    pairs: int
    detectable: tuple[float, ...]


def resolve(contests: Sequence[Contest]) -> Resolution:
    """Compare all pairs of entries by all measures of a task."""
    entries = len(contests[0].seeds)
    pairs = list(combinations(range(entries), 2))
    tests = [_test(contest, *pair) for contest in contests for pair in pairs]
    known = [np.nan if p is None else p for _, _, _, p in tests]
    corrected = np.nan_to_num(holm(known), nan=1.0) if tests else np.empty(0)
    better = np.zeros((entries, entries), bool)
    for (contest, (a, b)), (difference, *_), p in zip(
        ((contest, pair) for contest in contests for pair in pairs), tests, corrected.tolist(), strict=True
    ):
        if p < LEVEL:
            ahead = (difference > 0) == contest.higher
            better[(a, b) if ahead else (b, a)] = True
    better &= ~better.T  # measures that contradict each other resolve nothing
    places = _places(better)
    size = len(pairs)
    detectable = tuple(
        _detectable(tests[m * size : (m + 1) * size], len(tests)) for m in range(len(contests))
    )
    return Resolution(places, int(better.sum()), size, detectable)


def places_of_ranks(ranks: Floats) -> tuple[tuple[int, int], ...]:
    """Return best and worst places by mean ranks in replicates (R, E), pairs corrected by Holm."""
    entries = ranks.shape[1]
    pairs = list(combinations(range(entries), 2))
    better = np.zeros((entries, entries), bool)
    if len(ranks) < 2:
        return _places(better)
    differences = [ranks[:, a] - ranks[:, b] for a, b in pairs]
    p = [t_test(float(each.mean()), replicate_error(each), np.inf) for each in differences]
    corrected = np.nan_to_num(holm(p), nan=1.0) if pairs else np.empty(0)
    for (a, b), each, one in zip(pairs, differences, corrected.tolist(), strict=True):
        if one < LEVEL:
            better[(a, b) if each.mean() < 0 else (b, a)] = True
    return _places(better)


def _places(better: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """Return best and worst places, where `better[a, b]` says that a is better than b."""
    ahead, behind = better.sum(axis=0).tolist(), better.sum(axis=1).tolist()
    return tuple((a + 1, len(better) - b) for a, b in zip(ahead, behind, strict=True))


def _test(contest: Contest, a: int, b: int) -> tuple[float, float, float, float | None]:
    """Return difference, standard error, degrees of freedom and p-value of two entries; None without replicates."""
    difference = float(contest.seeds[a].mean() - contest.seeds[b].mean())
    error = (
        replicate_error(contest.replicates[a] - contest.replicates[b])
        if len(contest.replicates[a])
        else np.nan
    )
    if not np.isfinite(error):
        return difference, np.nan, np.nan, None
    parts = [(error**2, float(len(contest.replicates[a]) - 1)), *(_of_seeds(contest, k) for k in (a, b))]
    parts = [(variance, degrees) for variance, degrees in parts if variance > 0]
    total = sum(variance for variance, _ in parts)
    if not total:
        return difference, 0.0, np.inf, 1.0 if difference == 0 else 0.0
    degrees = total**2 / sum(variance**2 / d for variance, d in parts)
    return difference, float(np.sqrt(total)), degrees, t_test(difference, float(np.sqrt(total)), degrees)


def _of_seeds(contest: Contest, k: int) -> tuple[float, float]:
    """Return the variance of the mean over the seeds of entry k, and its degrees of freedom."""
    own = contest.seeds[k]
    if len(own) > 1:
        return float(own.var(ddof=1)) / len(own), len(own) - 1.0
    others = [(float(each.var(ddof=1)), len(each) - 1.0) for each in contest.seeds if len(each) > 1]
    degrees = sum(d for _, d in others)
    return (sum(v * d for v, d in others) / degrees, degrees) if degrees else (0.0, 1.0)


def _detectable(tests: Sequence[tuple[float, float, float, float | None]], count: int) -> float:
    """Return the median over pairs of the difference that would be found with `POWER` by the first step of Holm's test."""
    found = [
        error * _noncentrality(float(stats.t.ppf(1 - LEVEL / 2 / count, degrees)), degrees)
        for _, error, degrees, _ in tests
        if np.isfinite(error) and degrees >= 1
    ]
    return float(np.median(found)) if found else float("nan")


def _noncentrality(critical: float, degrees: float) -> float:
    """Return the difference, in its standard errors, whose t exceeds the critical value with `POWER`, the error being estimated."""
    z = float(stats.norm.ppf(POWER))
    return float(critical * (1 - 1 / (4 * degrees)) + z * np.sqrt(1 + critical**2 / (2 * degrees)))
