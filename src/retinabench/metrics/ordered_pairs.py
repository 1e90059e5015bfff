"""AUROC of the retained images at every referral count, without ranking them anew at each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from retinabench.metrics.weighted_images import MANY, Bools, Cases, as_index, block_ends

Floats = NDArray[np.float64]

Index = NDArray[np.integer[Any]]

NEAR = 128

"""Images of the parts whose pairs are named one by one, a power of two."""

PARTS = 256

"""Parts whose pairs are found at once."""


@dataclass(frozen=True)
class Step:
    """One gather: image `target` meets the sources number `low` … `high` - 1, a run of the opposite class."""

    source: Index
    target: Index
    low: Index
    high: Index

    def add_to(self, met: Floats, weight: Floats, factor: float = 1.0) -> None:
        """Add what the targets meet.

        Shapes: `met` (..., N), `weight` (..., N).
        """
        sums = _cumulated(weight[..., self.source])
        gain = sums[..., self.high] - sums[..., self.low]
        met[..., self.target] += gain if factor == 1.0 else factor * gain

    def products(self, weight: Floats, factor: Floats) -> Floats:
        """(R,) sums over the targets of factor (R, N) x what they meet of weight (R, N)."""
        sums = _cumulated(np.take(weight, self.source, axis=1))
        gain = np.take(sums, self.high, axis=1)
        gain -= np.take(sums, self.low, axis=1)
        return np.asarray(np.einsum("rt,rt->r", gain, np.take(factor, self.target, axis=1)))


def _cumulated(values: Floats) -> Floats:
    """(..., K+1) sums of the values (..., K) before each place."""
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    np.cumsum(values, axis=-1, out=sums[..., 1:])
    return sums


def two_tails(label: Bools, lower: Bools) -> Iterator[Step]:
    """A positive image stands above the earlier negatives of the lower tail, a negative one below the upper positives.

    Ties inside a tail: the lower tail counts them (an earlier negative at the same probability) and the upper does not.
    """
    for source, target in ((lower & ~label, label), (~lower & label, ~label)):
        before = _counts(source)[:-1]
        at = as_index(np.flatnonzero(target))
        yield Step(as_index(np.flatnonzero(source)), at, np.broadcast_to(np.intp(0), len(at)), before[at])


def _counts(held: Bools) -> Index:
    """(N+1,) how many are held before each place."""
    counts: Index = np.zeros(len(held) + 1, np.int32 if MANY < len(held) < 2**31 else np.intp)
    np.cumsum(held, out=counts[1:])
    return counts


def halvings(label: Bools, prob: Floats) -> Iterator[Step]:
    """The steps of every level: left half against right half, in parts of 2, 4, 8, … times `NEAR` images."""
    n = len(prob)
    # By probability, negatives first where tied: all tied pairs are counted here, `ties` takes half of them back.
    by_prob = as_index(np.lexsort((label, prob)))
    for level in range(NEAR.bit_length() - 1, (n - 1).bit_length()):
        part = by_prob >> (level + 1)
        inside = np.argsort(part.astype(np.uint16) if part.max() < 65536 else part, kind="stable")
        sorted_, part = by_prob[inside], part[inside]
        left = (sorted_ >> level) & 1 == 0
        positive = label[sorted_]
        for source, target, upwards in (
            (left & ~positive, ~left & positive, True),
            (left & positive, ~left & ~positive, False),
        ):
            at = as_index(np.flatnonzero(target))
            if not len(at) or not source.any():
                continue
            before = _counts(source)
            first = np.searchsorted(part, part[at], side="left")
            last = np.searchsorted(part, part[at], side="right")
            low, high = (before[first], before[at]) if upwards else (before[at], before[last])
            yield Step(sorted_[source], sorted_[at], low, high)


def near_pairs(label: Bools, prob: Floats) -> Iterator[tuple[slice, Index, Index]]:
    """The pairs inside parts of `NEAR` images that `halvings` leaves out: the images of some parts; target, source in them."""
    n = len(prob)
    earlier = np.tri(NEAR, k=-1, dtype=bool)
    for start in range(0, n, NEAR * PARTS):
        rows = np.arange(start, min(start + NEAR * PARTS, n))
        part = np.append(rows, np.full(-len(rows) % NEAR, -1)).reshape(-1, NEAR)
        y, p = label[part], prob[part]
        met = np.where(y[:, :, None], p[:, None] <= p[:, :, None], p[:, None] >= p[:, :, None])
        met &= earlier & (y[:, None] != y[:, :, None]) & (part[:, :, None] >= 0)
        number, target, source = np.nonzero(met)
        yield slice(start, start + len(rows)), part[number, target] - start, part[number, source] - start


def ones_at(row: Index, column: Index, n: int) -> sparse.csr_array:
    """Return a matrix (N, N) with 1 in some places.

    Shapes: `row` (K,), `column` (K,).
    """
    return sparse.csr_array(
        (np.ones(len(row)), (row.astype(np.int32), column.astype(np.int32))), shape=(n, n)
    )


def earlier_ties(label: Bools, prob: Floats) -> list[Step]:
    """For every image the earlier ones of the opposite class at the same probability."""
    order = as_index(np.argsort(prob, kind="stable"))
    p, y = prob[order], label[order]
    ends = block_ends(p)
    if len(ends) == len(p):
        return []
    begin = np.concatenate(([0], ends[:-1] + 1)).astype(ends.dtype)
    first = np.repeat(begin, np.diff(ends, prepend=-1))
    del p, ends, begin
    steps = []
    for source, target in ((~y, y), (y, ~y)):
        before = _counts(source)
        at = as_index(np.flatnonzero(target & (before[:-1] > before[first])))
        if len(at):
            steps.append(Step(order[source], order[at], before[first[at]], before[at]))
    return steps


def inside_blocks(label: Bools, prob: Floats, ends: Index) -> tuple[Step, Index, Step] | None:
    """Return positive images against the negatives of their own block; None where no images are tied.

    Shapes: `label` (N,), `prob` (N,), `ends` (B,).
    """
    if len(ends) == len(prob):
        return None
    sizes = np.diff(ends, prepend=-1)
    block = np.repeat(np.arange(len(ends), dtype=ends.dtype), sizes)
    order = as_index(np.lexsort((prob, block)))
    p, y = prob[order], label[order]  # images stay in their block
    new = np.concatenate(([True], (p[1:] != p[:-1]) | (block[1:] != block[:-1])))
    group = _counts(new)[1:] - 1
    starts = as_index(np.append(np.flatnonzero(new), len(p)))
    before = _counts(~y)
    at = as_index(np.flatnonzero(y))
    b = block[at]
    low = before[(ends - sizes + 1)[b]]
    below, through = before[starts[group[at]]], before[starts[group[at] + 1]]
    source, target = order[~y], order[at]
    return Step(source, target, low, below), b, Step(source, target, below, through)


FEW_BLOCKS = 3

EXACT = 2.0**52

"""Sums of whole numbers and halves below this are the same in every order."""


class Pairs:
    """The index of the pairs of a positive and a negative image, for AUROC at every referral count."""

    def __init__(self, cases: Cases) -> None:
        self.label, self.prob, self.ends = cases.label, cases.prob, cases.ends
        self.n = len(self.prob)
        self.asked = False

    @cached_property
    def tails(self) -> bool:
        """Whether the images enter from both ends of the probability scale inwards."""
        lower = self.prob < self.prob[-1]
        low, high = self.prob[lower], self.prob[~lower]
        return bool((low[1:] >= low[:-1]).all() and (high[1:] <= high[:-1]).all())

    @cached_property
    def steps(self) -> list[Step]:
        """The gathers, but for the pairs that `near` holds."""
        return list(self._each_step())

    def _each_step(self) -> Iterator[Step]:
        if self.tails:
            return two_tails(self.label, self.prob < self.prob[-1])
        return halvings(self.label, self.prob)

    @cached_property
    def near(self) -> sparse.csr_array | None:
        """(N, N): 1 in the row of each image for the pairs inside its part of `NEAR` images; None for two tails."""
        if self.tails:
            return None
        pairs = [(to + part.start, of + part.start) for part, to, of in near_pairs(self.label, self.prob)]
        target, source = (np.concatenate(found) for found in zip(*pairs, strict=True))
        return ones_at(target, source, self.n)

    @cached_property
    def ties(self) -> list[Step]:
        """For every image the earlier ones of the opposite class at the same probability."""
        return earlier_ties(self.label, self.prob)

    @cached_property
    def tie_sign(self) -> Floats:
        """(N,) what brings a tied pair, which `steps` and `near` count fully or not at all, to one half."""
        sign = np.full(self.n, -0.5)
        if self.tails:
            sign[self.label != (self.prob < self.prob[-1])] = 0.5
        return sign

    @cached_property
    def inner(self) -> tuple[Step, Index, Step] | None:
        """The pairs inside blocks, None where no images are tied."""
        return inside_blocks(self.label, self.prob, self.ends)

    def cumulate(self, weight: Floats) -> tuple[Floats, Floats]:
        """Pairs among the blocks entered, (..., B+1) led by 0, and pairs inside each block, (..., B), for weights (..., N)."""
        few = len(self.ends) <= FEW_BLOCKS
        if weight.ndim > 1 and (few or len(weight) == 1):
            total, inside = zip(*map(self.cumulate, weight), strict=True)
            return np.stack(total), np.stack(inside)
        if few and weight.sum() ** 2 < EXACT and (weight == np.rint(weight)).all():
            return self._ranked_anew(weight)
        met = self._met(weight)
        if self.ties:
            tied = np.zeros_like(weight)
            for step in self.ties:
                step.add_to(tied, weight)
            met += self.tie_sign * tied
        sums = np.zeros((*weight.shape[:-1], len(self.ends) + 1))
        sums[..., 1:] = np.cumsum(met * weight, axis=-1)[..., self.ends]
        inner = np.zeros((*weight.shape[:-1], len(self.ends)))
        if self.inner is not None:
            step, block, tie = self.inner
            gained = np.zeros_like(weight)
            step.add_to(gained, weight)
            tie.add_to(gained, weight, 0.5)
            gained *= weight
            for found, row in zip(
                inner.reshape(-1, inner.shape[-1]), gained.reshape(-1, self.n), strict=True
            ):
                found += np.bincount(block, row[step.target], minlength=len(found))
        return sums, inner

    def _met(self, weight: Floats) -> Floats:
        """(..., N) pairs that each image brings to those before it, ties fully or not at all."""
        passing = self.n > MANY and not self.asked and not self.tails
        self.asked = True
        if not passing:
            met = np.zeros_like(weight)
            if self.near is not None:
                met += (self.near @ weight.T).T
            for step in self.steps:
                step.add_to(met, weight)
            return met
        met = np.zeros(self.n)
        for part, target, source in near_pairs(self.label, self.prob):
            met[part] = ones_at(target, source, len(met[part])) @ weight[part]
        for step in self._each_step():
            step.add_to(met, weight)
        return met

    def _ranked_anew(self, weight: Floats) -> tuple[Floats, Floats]:
        """`cumulate` by sorting the images entered at the end of each block; exact for whole numbers."""
        order = as_index(np.argsort(self.prob, kind="stable"))
        total: list[float] = [0.0]
        inside: list[float] = []
        start = 0
        for end in (self.ends + 1).tolist():
            entered = order[order < end]
            inside.append(_ordered_pairs(entered[entered >= start], self.label, self.prob, weight))
            total.append(_ordered_pairs(entered, self.label, self.prob, weight) if start else inside[0])
            start = end
        return np.array(total), np.array(inside)

    def products(self, weight: Floats, factor: Floats) -> Floats:
        """(R,) sums over images of factor (R, N) x the pairs that each brings to those before it, per unit of its weight.

        With the images' weights as factors this is the last of the sums that `cumulate` gives.
        """
        found = np.zeros(len(weight))
        if self.near is not None:
            found += np.einsum("rn,rn->r", np.ascontiguousarray((self.near @ weight.T).T), factor)
        for step in self.steps:
            found += step.products(weight, factor)
        if self.ties:
            signed = factor * self.tie_sign
            for step in self.ties:
                found += step.products(weight, signed)
        return found

    def inner_products(self, weight: Floats, factor: Floats) -> Floats:
        """(R,) sums over positive images of factor (R, N) x the pairs of each inside its block."""
        if self.inner is None:
            return np.zeros(len(weight))
        below, _, tied = self.inner
        return below.products(weight, factor) + tied.products(weight, factor) / 2


def _ordered_pairs(rows: Index, label: Bools, prob: Floats, weight: Floats) -> float:
    """Pairs of a positive image above a negative one, ties half, among rows by increasing probability."""
    if not len(rows):
        return 0.0
    ends, mass = block_ends(prob[rows]), weight[rows]
    positive = np.diff(np.cumsum(np.where(label[rows], mass, 0.0))[ends], prepend=0.0)
    negatives = np.cumsum(np.where(label[rows], 0.0, mass))[ends]
    below = np.concatenate(([0.0], negatives[:-1]))
    return float(np.sum(positive * (below + negatives))) / 2
