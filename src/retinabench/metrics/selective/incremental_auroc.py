"""AUROC of the retained images at every referral count, without ranking them anew at each.

AUROC = (mass of pairs, a positive image above a negative one, ties half) / (positive mass x negative mass). Images
enter in the order of their uncertainty; the pairs that image i adds are those with the opposite class *before* it in
that order and on the right side of it in probability: counting in two dimensions. Splitting the sequence in halves,
quarters, … every pair (j before i) is met exactly once with j in the left and i in the right half of one part. There
the mass of j on the right side of i is a difference of two cumulated sums over the left half, sorted by probability.
All sorting is done once; a new set of weights costs log2(N) passes of gather, cumulate and subtract. Pairs inside parts of
`pair_steps.NEAR` images are so few that a sparse matrix names them, in place of the last seven passes.

Where the order of referral follows |p - 1/2| (total entropy, maximum probability), the images before i are two tails
around it, and one cumulated sum per class does the same. An order of a few blocks of ties, such as right before wrong, is ranked
anew at the end of each.

The index of a million images that are no two tails takes 250 bytes each: it is kept only from the second weights on, for a
bootstrap; the first go through its levels as they are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from retinabench.metrics.selective.pair_steps import (
    Step,
    earlier_ties,
    halvings,
    inside_blocks,
    near_pairs,
    ones_at,
    two_tails,
)
from retinabench.metrics.sorted_images import MANY, Bools, Cases, as_index, block_ends

Floats = NDArray[np.float64]
Index = NDArray[np.integer[Any]]
FEW_BLOCKS = 3
EXACT = 2.0**52
"""Sums of whole numbers and halves below this are the same in every order."""


class Pairs:
    """The index of the pairs of a positive and a negative image, for AUROC at every referral count.

    Args:
        cases: N images in the order in which they enter, the most certain first; blocks of equal uncertainty enter together.
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
