"""How far a mean over seeds, or over ensembles of seeds, may be from the one over all seeds that there are.

Ensembles of K of the same n seeds share members: their values are not independent, and their standard deviation over
the square root of their number is too small. The mean over subsets is a U-statistic of the n seeds; its error is that of
the delete-one jackknife over seeds (Efron & Stein 1981). For K = 1 it is the usual standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.metrics.inference.over_seeds import Aggregate, aggregate

Floats = NDArray[np.float64]
Subset = tuple[int, ...]


def over_seeds(
    values: Sequence[float | None], subsets: Sequence[Subset], seeds: int, rules: str = "corrected"
) -> Aggregate:
    """Mean over subsets (M,) of `seeds` seeds, with its standard error.

    corrected: jackknife over seeds where the subsets are all of their size, NaN where no seed can be left out.
    published: the released code's standard deviation (ddof 0) over sqrt(M), members shared or not.
    """
    found = aggregate(values)
    if rules == "published":
        std = float(np.asarray(values, np.float64).std()) if np.isfinite(found.mean) else np.nan
        return Aggregate(found.mean, std, std / float(np.sqrt(len(values))), found.runs)
    size = len(subsets[0])
    if size == 1:
        return found
    error = np.nan
    if seeds > size and len(subsets) == comb(seeds, size) and np.isfinite(found.mean):
        v = np.asarray(values, np.float64)
        left = np.array([v[[i not in subset for subset in subsets]].mean() for i in _members(subsets)])
        error = float(np.sqrt((seeds - 1) / seeds * ((left - left.mean()) ** 2).sum()))
    return Aggregate(found.mean, found.std, error, found.runs)


def resampled_weights(
    subsets: Sequence[Subset], replicates: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """Weights (R, M) of M subsets when their seeds are drawn again with replacement, summing to 1 in each row.

    A subset's weight is the product of how often its seeds were drawn. Where every seed is in every subset, nothing can
    be drawn again: all weights are equal.
    """
    members = _members(subsets)
    if all(len(subset) == len(members) for subset in subsets):
        return np.full((replicates, len(subsets)), 1 / len(subsets))
    place = {seed: k for k, seed in enumerate(members)}
    columns = np.array([[place[seed] for seed in subset] for subset in subsets])  # (M, K)
    weights = np.zeros((replicates, len(subsets)))
    empty = np.arange(replicates)
    while len(empty):  # fewer different seeds than an ensemble has members: drawn once more
        counts = generator.multinomial(len(members), np.full(len(members), 1 / len(members)), len(empty))
        weights[empty] = counts[:, columns].prod(axis=2)
        empty = empty[weights[empty].sum(axis=1) == 0]
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def weighted_mean(draws: ArrayLike, weights: Floats) -> Floats:
    """Mean (R,) of draws (R, M) by weights (R, M); what has no weight may be undefined."""
    values = np.asarray(draws, np.float64)
    return np.asarray(np.where(weights > 0, weights * values, 0.0).sum(axis=1))


def _members(subsets: Sequence[Subset]) -> list[int]:
    return sorted({seed for subset in subsets for seed in subset})
