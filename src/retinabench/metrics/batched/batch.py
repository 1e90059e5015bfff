"""Images with many weightings at once: what the batched forms of the scores share.

A bootstrap asks for every score of a thousand weightings. The plain form of a score takes one at a time; the batched
form takes a `Batch` of R of them as the rows of matrices, computes each cumulated sum once for all scores, and never
calls BLAS, whose threads would make results depend on their number. Row r of every result depends on row r of the weights alone, to the
last bit, so that no value depends on how replicates are cut into batches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.sorted_images import SLACK, Cases

Floats = NDArray[np.float64]
Index = NDArray[np.integer[Any]]
Derived = TypeVar("Derived")


class Batch:
    """R weightings of N sorted images; the argument of every batched score.

    Args:
        cases: The images.
        weight: (R, N) weights >= 0 in the sorted order of the cases, in every row some above 0.
    """

    def __init__(self, cases: Cases, weight: Floats) -> None:
        self.cases, self.weight = cases, np.ascontiguousarray(weight)  # else sums would run across rows
        self.total: Floats = self.weight.sum(axis=1)
        self._derived: dict[Callable[[Batch], Any], Any] = {}

    def derived(self, build: Callable[[Batch], Derived]) -> Derived:
        """Return `build(self)`, computed once: what several scores need."""
        if build not in self._derived:
            self._derived[build] = build(self)
        found: Derived = self._derived[build]
        return found

    def sum(self, values: NDArray[np.generic]) -> Floats:
        """(R,) weighted sums of (N,) values in sorted order."""
        return np.asarray(np.einsum("rn,n->r", self.weight, np.asarray(values, np.float64)))

    def mean(self, values: NDArray[np.generic]) -> Floats:
        """(R,) weighted means of (N,) values in sorted order."""
        return self.sum(values) / self.total

    def block_sums(self, mass: Floats) -> Floats:
        """(R, B+1) cumulated (R, N) masses at the ends of the blocks of equal uncertainty, led by 0."""
        ends = self.cases.ends
        sums = cumulate(mass)
        return sums if len(ends) == mass.shape[1] else np.take(sums, np.append(0, ends + 1), axis=1)

    @cached_property
    def positives(self) -> Floats:
        """(R,) mass of the positive images."""
        return self.sum(self.cases.label)

    @cached_property
    def negatives(self) -> Floats:
        """(R,) mass of the negative images."""
        return self.sum(~self.cases.label)

    @cached_property
    def mass(self) -> Floats:
        """(R, B+1) mass of the blocks before."""
        return self.block_sums(self.weight)

    @cached_property
    def wrong(self) -> Floats:
        """(R, B+1) mass of wrong predictions in the blocks before."""
        return self.block_sums(self.weight * self.cases.error)

    @cached_property
    def positive(self) -> Floats:
        """(R, B+1) mass of positive images in the blocks before."""
        return self.block_sums(self.weight * self.cases.label)

    @cached_property
    def by_prob(self) -> Floats:
        """(R, N) weights from the highest probability down."""
        return np.take(self.weight, self.cases.by_prob.order, axis=1)

    # ------------------------------------------------------------ points: the counts of a referral curve

    @cached_property
    def count(self) -> Index:
        """(R,) number K of points of a curve, as `Weighted.points`."""
        return np.maximum(1, np.rint(self.total)).astype(np.intp)

    @cached_property
    def step(self) -> Floats:
        """(R,) retained mass from one point to the next."""
        return self.total / self.count

    @cached_property
    def passed(self) -> Index:
        """(R, B+1) number of points at or below the mass of the blocks before."""
        points = (self.mass + (SLACK * self.total)[:, None]) / self.step[:, None]
        passed = np.minimum(points.astype(np.intp), self.count[:, None])
        passed[:, -1] = self.count
        return passed

    @cached_property
    def share(self) -> Floats:
        """(R, N) share of each image in the mean over all points of the mean over the retained.

        With mass x before a block and points p_k = k step, the share of all that comes before is the mean over k of min(p_k, x) / p_k.
        As k(x) of the K points are at or below x, this is (k(x) + x / step (H_K - H_k(x))) / K, H the harmonic numbers.
        """
        tail = _harmonic_tail(self.passed, self.count)
        before = (self.passed + self.mass / self.step[:, None] * tail) / self.count[:, None]
        share = np.diff(before, axis=1)
        if len(self.cases.ends) == len(self.cases):
            return share
        held = np.diff(self.mass, axis=1)
        per_mass = np.divide(share, held, out=np.zeros_like(share), where=held > 0)
        return np.asarray(np.take(per_mass, self.cases.index(block_of), axis=1) * self.weight)


def block_of(cases: Cases) -> Index:
    """(N,) the block of equal uncertainty of each image."""
    return np.repeat(np.arange(len(cases.ends)), np.diff(cases.ends, prepend=-1))


def cumulate(mass: Floats) -> Floats:
    """(R, N+1) sums of the columns before, for (R, N)."""
    sums = np.zeros((len(mass), mass.shape[1] + 1))
    np.cumsum(mass, axis=1, out=sums[:, 1:])
    return sums


def ratio(part: Floats, whole: Floats) -> Floats:
    """part / whole, NaN where the whole is not above 0."""
    return np.asarray(np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0))


def _harmonic_tail(first: Index, last: Index) -> Floats:
    """(R, B) sum of 1/j over first < j <= last, for first (R, B) and last (R,), to full precision."""
    high, low = _harmonic(int(last.max()).bit_length())
    tail = high[last][:, None] - high[first]
    tail += low[last][:, None] - low[first]
    return np.asarray(tail)


@lru_cache(maxsize=4)
def _harmonic(bits: int) -> tuple[Floats, Floats]:
    """Harmonic numbers H_0 … H_(2^bits), each as a sum of two numbers.

    Multiples of 2^-44 cumulate without rounding. What they leave is so small that its rounding is of no account. A difference of
    two harmonic numbers is then as precise as if its terms had been summed.
    """
    inverse = 1 / np.arange(1, 2**bits + 1)
    high = np.round(inverse * 2.0**44) / 2.0**44
    zero = np.zeros(1)
    return np.concatenate((zero, np.cumsum(high))), np.concatenate((zero, np.cumsum(inverse - high)))
