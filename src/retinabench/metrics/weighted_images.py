"""Images sorted once for all scores, with any weights.

Every score of this package is a function of *weighted* images. A weight is a number of images: 2 means that the image
is there twice (a bootstrap replicate), 12.1 that it stands for 12.1 (the balanced set), and the total weight W stands
for W images. Sorting is the slow part of most scores and does not depend on weights.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError

Floats = NDArray[np.float64]

Bools = NDArray[np.bool_]

Index = TypeVar("Index")

SLACK = 1e-12  # of the total mass: a point that misses a block's end by rounding is at the end

MANY = 2**18

"""Images above which indexes are kept short."""

EPS = 1e-15  # probabilities are clipped to [EPS, 1 - EPS] in logarithms: one saturated mistake costs 34.5 nats, not infinity


def as_index(rows: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
    """Numbers of rows in half the memory where they are many; 64 bits are faster where they are few."""
    return rows.astype(np.int32) if MANY < len(rows) < 2**31 else rows


def block_ends(ordered: Floats) -> NDArray[np.integer[Any]]:
    """Return the last place of each run of equal values in (N,) ordered ones."""
    ends = as_index(np.flatnonzero(ordered[1:] != ordered[:-1]))
    return np.append(ends, np.asarray([len(ordered) - 1], ends.dtype))


class RankedImages:
    """Images ordered by a score from the highest, equal values as one step."""

    def __init__(self, score: Floats) -> None:
        self.order = as_index(np.argsort(-score, kind="stable"))
        ranked = score[self.order]
        self.ends = block_ends(ranked)
        self.values: Floats = ranked[self.ends]

    def cumulate(self, mass: Floats) -> Floats:
        """(G,) mass of the images at or above each of the G distinct values, from the highest."""
        return np.asarray(np.cumsum(mass[self.order])[self.ends])


def is_positive(prob: Floats, threshold: float = 0.5) -> Bools:
    """Whether probabilities (N,) count as positive: p >= threshold, but p > 0.5 at 0.5, as the papers have it."""
    return np.asarray(prob > 0.5 if threshold == 0.5 else prob >= threshold)


class Cases:
    """N images with label, probability and uncertainty, sorted by uncertainty (then probability and label).

    Attributes are in sorted order; `order` (N,) leads from there to the rows given. `ends` (B,) is the last image of
    each block of equal uncertainty. `called` (N,): the model calls the image positive. `error` (N,): that is wrong.
    """

    def __init__(
        self,
        label: ArrayLike,
        prob: ArrayLike,
        uncertainty: ArrayLike | None = None,
        shifted: ArrayLike | None = None,
        threshold: float = 0.5,
        patient: ArrayLike | None = None,
    ) -> None:
        y, p = np.asarray(label), np.asarray(prob, np.float64)
        u = np.zeros(len(p)) if uncertainty is None else np.asarray(uncertainty, np.float64)
        if not (y.ndim == p.ndim == u.ndim == 1 and len(y) == len(p) == len(u) > 0):
            raise InputError(
                f"label, prob and uncertainty have shapes {y.shape}, {p.shape}, {u.shape}; needed is (N,) for all",
                hint="Give one value per image, at least one image.",
            )
        if not (np.isin(y, (0, 1)).all() and ((p >= 0) & (p <= 1)).all() and np.isfinite(u).all()):
            raise InputError("label must be 0 or 1, prob in [0, 1] and uncertainty finite")
        order = np.lexsort((y, p, u))
        self.patient = as_index(
            (np.arange(len(p)) if patient is None else np.asarray(patient, np.intp))[order]
        )
        self.order = as_index(order)
        self.label: Bools = (y == 1)[self.order]
        self.prob, self.uncertainty = p[self.order], u[self.order]
        self.shifted: Bools | None = None
        if shifted is not None:
            self.shifted = np.asarray(shifted, bool)[self.order]
        self.ends = block_ends(self.uncertainty)
        self.threshold = threshold
        self.called = is_positive(self.prob, threshold)
        self.error: Bools = self.called != self.label
        self._indexes: dict[Callable[[Cases], Any], Any] = {}

    def __len__(self) -> int:
        return len(self.prob)

    def reordered(self, uncertainty: ArrayLike) -> Cases:
        """Return the same images in another order of referral.

        Shapes: `uncertainty` (N,).
        """
        return Cases(self.label, self.prob, uncertainty, self.shifted, self.threshold, self.patient)

    def weighted(self, weight: ArrayLike | None = None) -> Weighted:
        """Weigh the images: (N,) in the order of the rows given to `Cases`; None is 1 for each."""
        if weight is None:
            return Weighted(self, np.ones(len(self)))
        w = np.asarray(weight, np.float64)
        if w.shape != (len(self),) or not np.isfinite(w).all() or (w < 0).any() or not w.any():
            raise InputError(f"weights must be {len(self)} finite numbers >= 0, not all 0")
        return Weighted(self, w[self.order])

    @cached_property
    def log_loss(self) -> Floats:
        """(N,) in nats."""
        clipped = np.clip(self.prob, EPS, 1 - EPS)
        return np.asarray(-np.log(np.where(self.label, clipped, 1 - clipped)))

    @cached_property
    def by_prob(self) -> RankedImages:
        """Images from the highest probability down."""
        return RankedImages(self.prob)

    @cached_property
    def by_uncertainty(self) -> RankedImages:
        """Images from the highest uncertainty down."""
        return RankedImages(self.uncertainty)

    def index(self, build: Callable[[Cases], Index]) -> Index:
        """Return `build(self)`, computed once: what a score needs of the images that does not depend on weights."""
        if build not in self._indexes:
            self._indexes[build] = build(self)
        found: Index = self._indexes[build]
        return found

    def forget(self) -> None:
        """Give up indexes and orders, which are made again where they are asked for."""
        self._indexes.clear()
        for name in ("by_prob", "by_uncertainty", "log_loss"):
            vars(self).pop(name, None)


class Weighted:
    """`Cases` with a weight each: the one argument of every score.

    weight: (N,) in the sorted order of the cases. `total` = W. `points` (K,) are the retained masses at which curves
    are given: W k / K for k = 1 … K with K = round(W), so that unit weights give every count 1 … N and whole-number
    weights give what the images repeated that often would give.
    """

    def __init__(self, cases: Cases, weight: Floats) -> None:
        self.cases, self.weight = cases, weight
        self.total = float(weight.sum())
        self.positive = np.where(cases.label, weight, 0.0)
        self.negative = np.where(cases.label, 0.0, weight)
        self.positives = float(self.positive.sum())
        self.negatives = float(self.negative.sum())
        self._derived: dict[Callable[[Weighted], Any], Any] = {}

    def derived(self, build: Callable[[Weighted], Index]) -> Index:
        """Return `build(self)`, computed once: a result that several scores need."""
        if build not in self._derived:
            self._derived[build] = build(self)
        found: Index = self._derived[build]
        return found

    def forget_curves(self) -> None:
        """Give up what curves were made of; it is made again where it is asked for."""
        for name in (
            "points",
            "mass",
            "position",
            "retained_error",
            "retained_positives",
            "retained_negatives",
        ):
            vars(self).pop(name, None)

    def mean(self, values: ArrayLike) -> float:
        """Weighted mean of (N,) values in sorted order."""
        return float(self.weight @ np.asarray(values, np.float64) / self.total)

    @cached_property
    def points(self) -> Floats:
        """(K,) retained masses, ascending."""
        count = max(1, round(self.total))
        return np.asarray(np.arange(1, count + 1) * (self.total / count), np.float64)

    @cached_property
    def mass(self) -> Floats:
        """(B+1,) mass of the blocks before, from 0 to W."""
        return self.block_sums(self.weight)

    def block_sums(self, mass: Floats) -> Floats:
        """(B+1,) cumulated (N,) mass at the ends of the blocks, led by 0."""
        return np.concatenate(([0.0], np.cumsum(mass)[self.cases.ends]))

    @cached_property
    def position(self) -> tuple[NDArray[np.integer[Any]], Floats]:
        """For every point: its block (K,), and the fraction (K,) in (0, 1] of that block which is retained."""
        mass, points = self.mass, self.points
        # Points are evenly spaced: how many lie at or below the end of each block needs no search.
        passed = np.floor((mass + SLACK * self.total) / points[0]).astype(np.intp)
        passed[-1] = len(points)
        block = np.repeat(as_index(np.arange(len(mass) - 1)), np.diff(np.minimum(passed, len(points))))
        return block, self._fraction(points, block)

    def locate(self, points: Floats) -> tuple[NDArray[np.intp], Floats]:
        """Block and retained fraction of it for retained masses (K,) in (0, W]."""
        mass = self.mass
        block = np.searchsorted(mass, points - SLACK * self.total, side="left") - 1
        block = np.clip(block, 0, len(mass) - 2)
        return block, self._fraction(points, block)

    def _fraction(self, points: Floats, block: NDArray[np.integer[Any]]) -> Floats:
        before, after = self.mass[block], self.mass[block + 1]
        fraction = np.ones(len(points))
        open_ = after - points > SLACK * self.total
        np.divide(points - before, after - before, out=fraction, where=open_)
        return np.clip(fraction, 0.0, 1.0)

    def along(self, mass: Floats) -> Floats:
        """(K,) retained part of an (N,) mass at every point."""
        sums = self.block_sums(mass)
        block, fraction = self.position
        return np.asarray(sums[block] + fraction * (sums[block + 1] - sums[block]))

    def retained(self, count: int) -> Floats:
        """Return the retained part (N,) of each image's weight at the point `count` of 1 … K; 0 retains nothing."""
        if count == 0:
            return np.zeros_like(self.weight)
        block, fraction = (part[count - 1] for part in self.position)
        first = 0 if block == 0 else int(self.cases.ends[block - 1]) + 1
        part = np.where(np.arange(len(self.weight)) < first, self.weight, 0.0)
        inside = slice(first, int(self.cases.ends[block]) + 1)
        part[inside] = fraction * self.weight[inside]
        return part

    @cached_property
    def retained_error(self) -> Floats:
        """(K,) mass of wrong predictions among the retained."""
        return self.along(self.weight * self.cases.error)

    @cached_property
    def retained_positives(self) -> Floats:
        """(K,) mass of positive images among the retained."""
        return self.along(self.positive)

    @cached_property
    def retained_negatives(self) -> Floats:
        """(K,) mass of negative images among the retained."""
        return self.along(self.negative)


BatchIndex = NDArray[np.integer[Any]]

Derived = TypeVar("Derived")


class Batch:
    """R weightings of N sorted images; the argument of every batched score.

    Shapes: `weight` (R, N).
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
    def count(self) -> BatchIndex:
        """(R,) number K of points of a curve, as `Weighted.points`."""
        return np.maximum(1, np.rint(self.total)).astype(np.intp)

    @cached_property
    def step(self) -> Floats:
        """(R,) retained mass from one point to the next."""
        return self.total / self.count

    @cached_property
    def passed(self) -> BatchIndex:
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


def block_of(cases: Cases) -> BatchIndex:
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


def _harmonic_tail(first: BatchIndex, last: BatchIndex) -> Floats:
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
