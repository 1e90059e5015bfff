"""Groups of test points, and the bootstrap over them, with the same resampled points for all that is compared.

Every measure is a function of weighted means over points (`Measure`), so that a thousand replicates are one
matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.core.random_streams import numpy_generator
from retinabench.fidelity.targets.target import Target
from retinabench.metrics.bootstrap import percentile_interval

Values = NDArray[np.float64]
ALL = "all"
BLOCK = 1 << 22  # weights turned into float64 at once


@dataclass(frozen=True, eq=False)
class Measure:
    """A number that is a function of means over points.

    Shapes: `finish` (..., M).
    """

    terms: Values
    finish: Callable[[Values], Values]


def mean_of(values: Values) -> Measure:
    """Return the mean of one value per point, (n,)."""
    return Measure(np.asarray(values, np.float64)[:, None], lambda means: means[..., 0])


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value, and its value in each replicate, (R,), or (0,) where it is not resampled."""

    value: float
    draws: Values

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the percentile interval; NaN without replicates."""
        if not len(self.draws):
            return np.nan, np.nan
        low, high = percentile_interval(self.draws[:, None], level)
        return float(low[0]), float(high[0])


def average(estimates: list[Estimate]) -> Estimate:
    """Return the mean of estimates of the same replicates."""
    return Estimate(
        float(np.mean([one.value for one in estimates])), np.mean([one.draws for one in estimates], axis=0)
    )


def groups_of(target: Target, group: NDArray[np.str_]) -> dict[str, NDArray[np.intp]]:
    """Return the rows of each group of test points: all, every kind, and every strength of a kind that has several."""
    kinds = np.array([name.partition("-")[0] for name in group.tolist()])
    strengths = np.array([name.rpartition("-")[2] if "-" in name else "" for name in group.tolist()])
    found = {ALL: np.arange(len(group))}
    for kind in target.groups:
        found[kind] = np.flatnonzero(kinds == kind)
        of_kind = sorted(set(strengths[found[kind]].tolist()))
        if len(of_kind) > 1:
            found |= {
                f"{kind} {s}": np.flatnonzero((kinds == kind) & (strengths == s))
                for s in of_kind
                if s.isdigit()
            }
    return {name: rows for name, rows in found.items() if len(rows)}


@dataclass(frozen=True, eq=False)
class Resampling:
    """How often each test point occurs in each replicate, (R, N), resampled with replacement within its kind."""

    counts: NDArray[np.uint8]
    groups: dict[str, NDArray[np.intp]]

    @classmethod
    def of(cls, target: Target, group: NDArray[np.str_], replicates: int, seed: int) -> Resampling:
        """Return resampled test points of a target.

        Shapes: `group` (N,).
        """
        groups = groups_of(target, group)
        generator = numpy_generator(seed, "fidelity bootstrap", target.name)
        counts = np.zeros((replicates, len(group)), np.uint8)
        for rows in (groups[kind] for kind in target.groups if kind in groups):
            n = len(rows)
            for some in _blocks(replicates, n):
                drawn = generator.integers(n, size=(some.stop - some.start, n))
                drawn += np.arange(len(drawn))[:, None] * n
                hits = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
                counts[some, rows] = hits
        return cls(counts, groups)

    def estimate(self, measures: dict[str, Measure], group: str) -> dict[str, Estimate]:
        """Return the estimates of measures whose points are the rows of `group`."""
        rows = self.groups[group]
        terms = np.concatenate([measure.terms for measure in measures.values()], axis=1)
        means = np.empty((len(self.counts), terms.shape[1]))
        for some in _blocks(len(self.counts), len(rows)):
            weights = self.counts[some][:, rows].astype(np.float64)
            with np.errstate(invalid="ignore", divide="ignore"):
                means[some] = weights @ terms / weights.sum(axis=1)[:, None]
        point, place, found = terms.mean(axis=0), 0, {}
        for name, measure in measures.items():
            own = slice(place, place := place + measure.terms.shape[1])
            found[name] = Estimate(float(measure.finish(point[own])), measure.finish(means[:, own]))
        return found


def _blocks(replicates: int, points: int) -> Iterator[slice]:
    step = max(1, BLOCK // max(1, points))
    for start in range(0, replicates, step):
        yield slice(start, min(start + step, replicates))
