"""AUROC of the retained images at every referral count, without ranking them anew at each.

AUROC = (mass of pairs, a positive image above a negative one, ties half) / (positive mass x negative mass). Images
enter in the order of their uncertainty; the pairs that image i adds are those with the opposite class *before* it in
that order and on the right side of it in probability: counting in two dimensions. Splitting the sequence in halves,
quarters, … every pair (j before i) is met exactly once with j in the left and i in the right half of one part. There
the mass of j on the right side of i is a difference of two cumulated sums over the left half, sorted by probability.
All sorting is done once; a new set of weights costs log2(N) passes of gather, cumulate and subtract. Pairs inside parts of
`NEAR` images are so few that a sparse matrix names them, in place of the last seven passes.

Where the order of referral follows |p - 1/2| (total entropy, maximum probability), the images before i are two tails
around it, and one cumulated sum per class does the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from retinabench.metrics.sorted_images import Cases

Floats = NDArray[np.float64]
Index = NDArray[np.intp]
NEAR = 128
"""Images of the parts whose pairs are named one by one, a power of two."""


@dataclass(frozen=True)
class _Step:
    """One gather: image `target` meets the sources number `low` … `high` - 1, a run of the opposite class."""

    source: Index
    target: Index
    low: Index
    high: Index

    def add_to(self, met: Floats, weight: Floats, factor: float = 1.0) -> None:
        sums = np.concatenate(([0.0], np.cumsum(weight[self.source])))
        gain = sums[self.high] - sums[self.low]
        met[self.target] += gain if factor == 1.0 else factor * gain

    def products(self, weight: Floats, factor: Floats) -> Floats:
        """(R,) sums over the targets of factor (R, N) x what they meet of weight (R, N)."""
        sums = np.zeros((len(weight), len(self.source) + 1))
        np.cumsum(np.take(weight, self.source, axis=1), axis=1, out=sums[:, 1:])
        gain = np.take(sums, self.high, axis=1)
        gain -= np.take(sums, self.low, axis=1)
        return np.asarray(np.einsum("rt,rt->r", gain, np.take(factor, self.target, axis=1)))


class Pairs:
    """The index of the pairs of a positive and a negative image, for AUROC at every referral count.

    Args:
        cases: N images in the order in which they enter, the most certain first; blocks of equal uncertainty enter together.
    """

    def __init__(self, cases: Cases) -> None:
        label, prob, ends = cases.label, cases.prob, cases.ends
        self.ends = ends
        self.n = len(prob)
        lower = prob < prob[-1]
        tails = _are_two_tails(prob, lower)
        self.steps = _two_tails(label, lower) if tails else _halvings(label, prob)
        self.near = None if tails else _near_pairs(label, prob)
        self.ties = _earlier_ties(label, prob)
        # `steps` and `near` count a tied pair fully or not at all; `ties` bring it to one half.
        self.tie_sign = np.full(self.n, -0.5)
        if tails:
            self.tie_sign[label != lower] = 0.5
        self.inner = _inside_blocks(label, prob, ends)

    def cumulate(self, weight: Floats) -> tuple[Floats, Floats]:
        """Pairs among the blocks entered, (B+1,) led by 0, and pairs inside each block, (B,)."""
        met = np.zeros(self.n) if self.near is None else self.near @ weight
        for step in self.steps:
            step.add_to(met, weight)
        if self.ties:
            tied = np.zeros(self.n)
            for step in self.ties:
                step.add_to(tied, weight)
            met += self.tie_sign * tied
        total = np.concatenate(([0.0], np.cumsum(met * weight)[self.ends]))
        inside = np.zeros(len(self.ends))
        if self.inner is not None:
            step, block, tie = self.inner
            gained = np.zeros(self.n)
            step.add_to(gained, weight)
            tie.add_to(gained, weight, 0.5)
            inside += np.bincount(block, gained[step.target] * weight[step.target], minlength=len(inside))
        return total, inside

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


def _are_two_tails(prob: Floats, lower: NDArray[np.bool_]) -> bool:
    """Whether the images enter from both ends of the probability scale inwards."""
    low, high = prob[lower], prob[~lower]
    return bool((low[1:] >= low[:-1]).all() and (high[1:] <= high[:-1]).all())


def _two_tails(label: NDArray[np.bool_], lower: NDArray[np.bool_]) -> list[_Step]:
    """A positive image stands above the earlier negatives of the lower tail, a negative one below the upper positives.

    Ties inside a tail: the lower tail counts them (an earlier negative at the same probability) and the upper does not.
    """
    steps = []
    for source, target in ((lower & ~label, label), (~lower & label, ~label)):
        before = np.concatenate(([0], np.cumsum(source)))[:-1]
        at = np.flatnonzero(target)
        steps.append(_Step(np.flatnonzero(source), at, np.zeros(len(at), np.intp), before[at]))
    return steps


def _halvings(label: NDArray[np.bool_], prob: Floats) -> list[_Step]:
    """The steps of every level: left half against right half, in parts of 2, 4, 8, … times `NEAR` images."""
    n = len(prob)
    steps = []
    # By probability, negatives first where tied: all tied pairs are counted here, `ties` takes half of them back.
    by_prob = np.lexsort((label, prob))
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
            at = np.flatnonzero(target)
            if not len(at) or not source.any():
                continue
            before = np.concatenate(([0], np.cumsum(source)))
            first = np.searchsorted(part, part[at], side="left")
            last = np.searchsorted(part, part[at], side="right")
            low, high = (before[first], before[at]) if upwards else (before[at], before[last])
            steps.append(_Step(sorted_[source], sorted_[at], low, high))
    return steps


def _near_pairs(label: NDArray[np.bool_], prob: Floats) -> sparse.csr_array:
    """(N, N): 1 in the row of each image for the pairs inside its part of `NEAR` images that `_halvings` leaves out."""
    n = len(prob)
    earlier = np.tri(NEAR, k=-1, dtype=bool)
    targets, sources = [], []
    for start in range(0, n, NEAR * 256):
        rows = np.arange(start, min(start + NEAR * 256, n))
        part = np.append(rows, np.full(-len(rows) % NEAR, -1)).reshape(-1, NEAR)
        y, p = label[part], prob[part]
        met = np.where(y[:, :, None], p[:, None] <= p[:, :, None], p[:, None] >= p[:, :, None])
        met &= earlier & (y[:, None] != y[:, :, None]) & (part[:, :, None] >= 0)
        number, target, source = np.nonzero(met)
        targets.append(part[number, target])
        sources.append(part[number, source])
    pairs = [np.concatenate(found).astype(np.int32) for found in (targets, sources)]
    return sparse.csr_array((np.ones(len(pairs[0])), (pairs[0], pairs[1])), shape=(n, n))


def _earlier_ties(label: NDArray[np.bool_], prob: Floats) -> list[_Step]:
    """For every image the earlier ones of the opposite class at the same probability."""
    order = np.argsort(prob, kind="stable")
    p, y = prob[order], label[order]
    first = np.searchsorted(p, p, side="left")
    steps = []
    for source, target in ((~y, y), (y, ~y)):
        before = np.concatenate(([0], np.cumsum(source)))
        at = np.flatnonzero(target & (before[:-1] > before[first]))
        if len(at):
            steps.append(_Step(order[source], order[at], before[first[at]], before[at]))
    return steps


def _inside_blocks(label: NDArray[np.bool_], prob: Floats, ends: Index) -> tuple[_Step, Index, _Step] | None:
    """Positive images against the negatives of their own block: those below, and (counted half) those tied."""
    if len(ends) == len(prob):
        return None
    block = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=-1))
    order = np.lexsort((prob, block))
    p, b, y = prob[order], block[order], label[order]
    new = np.concatenate(([True], (p[1:] != p[:-1]) | (b[1:] != b[:-1])))
    group = np.cumsum(new) - 1
    starts = np.append(np.flatnonzero(new), len(p))
    before = np.concatenate(([0], np.cumsum(~y)))
    at = np.flatnonzero(y)
    low = before[np.searchsorted(b, b[at], side="left")]
    below, through = before[starts[group[at]]], before[starts[group[at] + 1]]
    source, target = order[~y], order[at]
    return _Step(source, target, low, below), b[at], _Step(source, target, below, through)
