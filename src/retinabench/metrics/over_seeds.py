"""Means and standard errors over seeds of one method, and over ensembles that share seeds.

Ensembles of K of the same n seeds share members: their values are not independent, and their standard deviation over
the square root of their number is too small. The mean over subsets is a U-statistic of the n seeds; its standard error is
estimated by the delete-one jackknife over seeds. For K = 1 it is the usual standard error.

References:
    Arvesen, Jackknifing U-statistics, Ann. Math. Stat. 40:2076 (1969).
    Efron & Stein, The jackknife estimate of variance, Ann. Stat. 9:586 (1981).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import ArrayLike

from retinabench.core.errors import InputError

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
    """Return the mean over subsets of seeds with its standard error. Shapes: `values` (M,)."""
    found = aggregate(values)
    if rules == "published":
        std = float(np.asarray(values, np.float64).std()) if np.isfinite(found.mean) else np.nan
        return Aggregate(found.mean, std, std / float(np.sqrt(len(values))), found.runs)
    size = len(subsets[0])
    if size == 1 or (len(subsets) > 1 and len(_members(subsets)) == size * len(subsets)):
        return found
    error = np.nan
    if seeds > size and len(subsets) == comb(seeds, size) and np.isfinite(found.mean):
        effects = seed_effects(np.asarray(values, np.float64).tolist(), subsets)  # none where a seed is in every subset
        error = float(np.sqrt(sum(e**2 for e in effects.values()))) if effects else np.nan
    return Aggregate(found.mean, found.std, error, found.runs)


def seed_effects(values: ArrayLike, subsets: Sequence[tuple[Hashable, ...]]) -> dict[Hashable, float]:
    """Return by seed its part e of the mean over M subsets, scaled so that the sum of e² is the variance of the mean over seeds.

    With n seeds, mean m_(s) without the subsets of seed s, and mean m of these: e_s = sqrt((n - 1) / n) (m_(s) - m), the delete-one
    jackknife. Of single seeds the sum of e² is their variance (ddof 1) over n. Subsets that share no seed are units by themselves.
    Empty for a single subset, and where a seed is in every subset: nothing is known of other seeds.
    """
    members = _members(subsets)
    apart = len(members) == sum(map(len, subsets))
    units: list[Hashable] = sorted(subsets, key=str) if apart else list(members)
    v = np.asarray(values, np.float64).tolist()
    without = [
        [value for value, subset in zip(v, subsets, strict=True) if unit not in ([subset] if apart else subset)]
        for unit in units
    ]
    if len(units) < 2 or not all(without):
        return {}
    means, n = np.array([np.mean(part) for part in without]), len(units)
    return dict(zip(units, (np.sqrt((n - 1) / n) * (means - means.mean())).tolist(), strict=True))


def _members(subsets: Sequence[tuple[Hashable, ...]]) -> list[Hashable]:
    return sorted({seed for subset in subsets for seed in subset}, key=str)
