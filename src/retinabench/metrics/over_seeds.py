"""Means and standard errors over seeds of one method, and over ensembles that share seeds.

Ensembles of K of the same n seeds share members: their values are not independent, and their standard deviation over
the square root of their number is too small. The mean over subsets is a U-statistic of the n seeds; its standard error is
estimated by the delete-one jackknife over seeds. For K = 1 it is the usual standard error.

References:
    Arvesen, Jackknifing U-statistics, Ann. Math. Stat. 40:2076 (1969).
    Efron & Stein, The jackknife estimate of variance, Ann. Stat. 9:586 (1981).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError

Floats = NDArray[np.float64]

Subset = tuple[int, ...]


@dataclass(frozen=True)
class Aggregate:
    """Mean, standard deviation (ddof 1), standard error (std / sqrt(n)) and number of runs; NaN where undefined."""

    mean: float
    std: float
    error: float
    runs: int


def aggregate(values: ArrayLike | Sequence[float | None]) -> Aggregate:
    """Mean and standard error over runs, ddof 1; undefined runs (None, NaN) make the aggregate undefined.

    A run without a value is not dropped without a note, as the released code drops it. The
    error of one run is NaN. Ensembles that share members are not independent runs: their error is too small.
    """
    v = np.array([np.nan if x is None else x for x in np.asarray(values, object).tolist()], np.float64)
    if not len(v):
        raise InputError("no runs to aggregate")
    std = float(v.std(ddof=1)) if len(v) > 1 else np.nan
    return Aggregate(float(v.mean()), std, std / float(np.sqrt(len(v))), len(v))


def mean_over_subsets(
    values: Sequence[float | None], subsets: Sequence[Subset], seeds: int, rules: str = "corrected"
) -> Aggregate:
    """Return the mean over subsets of seeds with its standard error.

    Shapes: `values` (M,).
    """
    found = aggregate(values)
    if rules == "published":
        std = float(np.asarray(values, np.float64).std()) if np.isfinite(found.mean) else np.nan
        return Aggregate(found.mean, std, std / float(np.sqrt(len(values))), found.runs)
    size = len(subsets[0])
    if size == 1 or (len(subsets) > 1 and len(_members(subsets)) == size * len(subsets)):
        return found
    error = np.nan
    if seeds > size and len(subsets) == comb(seeds, size) and np.isfinite(found.mean):
        error = jackknife_error(np.asarray(values, np.float64).tolist(), subsets)
    return Aggregate(found.mean, found.std, error, found.runs)


def jackknife_error(values: Sequence[float], subsets: Sequence[Subset]) -> float:
    """Return the standard error of the mean over subsets by the delete-one jackknife over their seeds.

    Shapes: `values` (M,).
    """
    seeds = _members(subsets)
    without = [
        [value for value, subset in zip(values, subsets, strict=True) if seed not in subset] for seed in seeds
    ]
    if not all(without):
        return float("nan")
    means, n = np.array([np.mean(part) for part in without]), len(seeds)
    return float(np.sqrt((n - 1) / n * np.sum((means - means.mean()) ** 2)))


def resampled_weights(
    subsets: Sequence[Subset], replicates: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Return weights of subsets when their seeds are drawn again with replacement.

    The weight of a subset is the product of the counts of its seeds. Where every subset holds every seed, all weights are
    equal.

    Shapes: returns (R, M).
    """
    members = _members(subsets)
    if all(len(subset) == len(members) for subset in subsets):
        return np.full((replicates, len(subsets)), 1 / len(subsets))
    place = {seed: k for k, seed in enumerate(members)}
    columns = np.array([[place[seed] for seed in subset] for subset in subsets])  # (M, K)
    weights = np.zeros((replicates, len(subsets)))
    empty = np.arange(replicates)
    while len(empty):  # replicates with fewer different seeds than members are drawn again
        counts = generator.multinomial(len(members), np.full(len(members), 1 / len(members)), len(empty))
        weights[empty] = counts[:, columns].prod(axis=2)
        empty = empty[weights[empty].sum(axis=1) == 0]
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def weighted_mean(values: ArrayLike, weights: Floats) -> Floats:
    """Return the means (R,) of values (R, M) by weights (R, M); a value without weight may be undefined."""
    array = np.asarray(values, np.float64)
    return np.asarray(np.where(weights > 0, weights * array, 0.0).sum(axis=1))


def _members(subsets: Sequence[Subset]) -> list[int]:
    return sorted({seed for subset in subsets for seed in subset})
