"""AUROC of the retained images at every referral count, without ranking them anew at each.

AUROC = (mass of pairs, a positive image above a negative one, ties half) / (positive mass x negative mass). Images
enter in the order of their uncertainty; the pairs that image i adds are those with the opposite class *before* it in
that order and on the right side of it in probability: counting in two dimensions. Splitting the sequence in halves,
quarters, … every pair (j before i) is met exactly once with j in the left and i in the right half of one part. There
the mass of j on the right side of i is a difference of two cumulated sums over the left half, sorted by probability.
All sorting is done once; a new set of weights costs log2(N) passes of gather, cumulate and subtract. Pairs inside parts of
`NEAR` images are so few that a sparse matrix names them, in place of the last seven passes.

Where the order of referral follows |p - 1/2| (total entropy, maximum probability), the images before i are two tails
around it, and one cumulated sum per class does the same. An order of a few blocks of ties, such as right before wrong, is ranked
anew at the end of each.

The index of a million images that are no two tails takes 250 bytes each: it is kept only from the second weights on, for a
bootstrap; the first go through its levels as they are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from retinabench.metrics.weighted_images import MANY, Bools, Cases, Floats, Index, as_index, block_ends

NEAR = 128  # Images of the parts whose pairs are named one by one, a power of two.
PARTS = 256  # Parts whose pairs are found at once.
FEW_BLOCKS = 3
EXACT = 2.0**52  # Sums of whole numbers and halves below this are the same in every order.


class Step(NamedTuple):
    """One gather: image `target` meets the sources number `low` … `high` - 1, a run of the opposite class."""

    source: Index
    target: Index
    low: Index
    high: Index

    def gain(self, weight: NDArray[Any]) -> NDArray[Any]:
        """(T, ...) weight (N, ...) of the images that each target meets."""
        sums = np.zeros((len(self.source) + 1, *weight.shape[1:]), weight.dtype)
        np.cumsum(np.take(weight, self.source, axis=0), axis=0, dtype=weight.dtype, out=sums[1:])
        gain = np.take(sums, self.high, axis=0)
        gain -= np.take(sums, self.low, axis=0)
        return gain


class Inside(NamedTuple):
    """Pairs inside the M blocks of both classes, `block` (M,): positive images meet the negatives `below`, and those `tied`.

    start: (M,) the first target of each block.
    """

    block: Index
    start: Index
    below: Step
    tied: Step

    def pairs(self, weight: Floats, numbers: NDArray[Any]) -> Floats:
        """(..., M) pairs for weights (N, ...), also given as `numbers`."""
        met = (self.below.gain(numbers) + 0.5 * self.tied.gain(numbers)) * weight[self.below.target]
        return np.ascontiguousarray(np.add.reduceat(met, self.start, axis=0).T)


class Pairs:
    """The index of the pairs of a positive and a negative image, for AUROC at every referral count.

    `cases`: in the order in which they enter, the most certain first; blocks of equal uncertainty enter together.
    """

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
    def inner(self) -> Inside | None:
        """The pairs inside blocks; None where no images are tied in uncertainty."""
        return inside_blocks(self.label, self.prob, self.ends)

    def cumulate(self, weight: Floats, *, whole: bool = False) -> tuple[Floats, Floats | None]:
        """Pairs among the blocks entered, (..., B+1) led by 0, and pairs inside each block (..., B), for weights (..., N).

        The latter is None if no block has images of both classes.
        """
        few = len(self.ends) <= FEW_BLOCKS
        if weight.ndim > 1 and few:
            total, own = zip(*(self.cumulate(row, whole=whole) for row in weight), strict=True)
            return np.stack(total), None if own[0] is None else np.stack(own)
        if few and whole and weight.sum() ** 2 < EXACT:
            return self._ranked_anew(weight)
        columns = np.ascontiguousarray(weight.T)  # gathers then copy the weights of an image in all rows at once
        # Integers add up in a quarter of the time.
        numbers: NDArray[Any] = columns.astype(np.int32) if whole else columns
        met = self._met(columns, numbers)
        for step in self.ties:
            met[step.target] += (self.tie_sign[step.target] * step.gain(numbers).T).T
        met *= columns
        sums = np.zeros((len(self.ends) + 1, *columns.shape[1:]))
        sums[1:] = np.cumsum(met, axis=0)[self.ends]
        if self.inner is None:
            return np.ascontiguousarray(sums.T), None
        inside = np.zeros((*weight.shape[:-1], len(self.ends)))
        inside[..., self.inner.block] = self.inner.pairs(columns, numbers)
        return np.ascontiguousarray(sums.T), inside

    def _met(self, weight: Floats, numbers: NDArray[Any]) -> Floats:
        """(N, ...) pairs that each image brings to those before it, per unit of its weight, ties fully or not at all."""
        passing = self.n > MANY and not self.asked and not self.tails
        self.asked = True
        met = np.zeros_like(weight)
        if passing:
            for part, target, source in near_pairs(self.label, self.prob):
                met[part] = ones_at(target, source, len(met[part])) @ weight[part]
        elif self.near is not None:
            met += self.near @ weight
        for step in self._each_step() if passing else self.steps:
            met[step.target] += step.gain(numbers)
        return met

    def _ranked_anew(self, weight: Floats) -> tuple[Floats, Floats | None]:
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
        return np.array(total), np.array(inside) if len(self.ends) < self.n else None


def _ordered_pairs(rows: Index, label: Bools, prob: Floats, weight: Floats) -> float:
    """Pairs of a positive image above a negative one, ties half, among rows by increasing probability."""
    if not len(rows):
        return 0.0
    ends, mass = block_ends(prob[rows]), weight[rows]
    positive = np.diff(np.cumsum(np.where(label[rows], mass, 0.0))[ends], prepend=0.0)
    negatives = np.cumsum(np.where(label[rows], 0.0, mass))[ends]
    below = np.concatenate(([0.0], negatives[:-1]))
    return float(np.sum(positive * (below + negatives))) / 2


def two_tails(label: Bools, lower: Bools) -> Iterator[Step]:
    """A positive image stands above the earlier negatives of the lower tail, a negative one below the upper positives.

    Ties inside a tail: the lower tail counts them (an earlier negative at the same probability) and the upper does not.
    """
    for source, target in ((lower & ~label, label), (~lower & label, ~label)):
        before = _counts(source)[:-1]
        at = as_index(np.flatnonzero(target))
        yield Step(as_index(np.flatnonzero(source)), at, np.broadcast_to(np.intp(0), len(at)), before[at])


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
    return sparse.csr_array((np.ones(len(row)), (row.astype(np.int32), column.astype(np.int32))), shape=(n, n))


def earlier_ties(label: Bools, prob: Floats) -> list[Step]:
    """For every image the earlier ones of the opposite class at the same probability."""
    order = as_index(np.argsort(prob, kind="stable"))
    p = prob[order]
    same = p[1:] == p[:-1]
    tied = np.append(same, False) | np.append(False, same)
    order, p = order[tied], p[tied]
    y, new = label[order], np.append(True, p[1:] != p[:-1])[: len(p)]
    first = np.flatnonzero(new)[np.cumsum(new) - 1]
    steps = []
    for source, target in ((~y, y), (y, ~y)):
        before = _counts(source)
        at = as_index(np.flatnonzero(target & (before[:-1] > before[first])))
        if len(at):
            steps.append(Step(order[source], order[at], before[first[at]], before[at]))
    return steps


def inside_blocks(label: Bools, prob: Floats, ends: Index) -> Inside | None:
    """Return the pairs of a positive and a negative image of the same block; None if no block has both.

    label, prob: (N,). ends: (B,) the last image of each block of equal uncertainty.
    """
    starts, sizes = np.append(0, ends[:-1] + 1), np.diff(ends, prepend=-1)
    positives = np.add.reduceat(label, starts, dtype=np.intp)
    mixed = (positives > 0) & (positives < sizes)
    if not mixed.any():
        return None
    rows = as_index(np.flatnonzero(np.repeat(mixed, sizes)))
    number, first = np.flatnonzero(mixed), np.cumsum(sizes[mixed]) - sizes[mixed]
    block = np.repeat(np.arange(len(number)), sizes[mixed])
    order = rows[np.lexsort((prob[rows], block))]  # images stay in their block
    p, y = prob[order], label[order]
    new = np.concatenate(([True], (p[1:] != p[:-1]) | (block[1:] != block[:-1])))
    edges = np.append(np.flatnonzero(new), len(p))
    group, before = np.cumsum(new) - 1, _counts(~y)
    at = np.flatnonzero(y)
    low, below, through = (before[place] for place in (first[block[at]], edges[group[at]], edges[group[at] + 1]))
    source, target = order[~y], order[at]
    start = np.searchsorted(block[at], np.arange(len(number)))
    return Inside(number, start, Step(source, target, low, below), Step(source, target, below, through))


def _counts(held: Bools) -> Index:
    """(N+1,) how many are held before each place."""
    counts: Index = np.zeros(len(held) + 1, np.int32 if MANY < len(held) < 2**31 else np.intp)
    np.cumsum(held, out=counts[1:])
    return counts
