"""Average precision of the retained images at every referral count.

    AP = sum over retained positives i of  w_i x (positives at or above p_i) / (all at or above p_i)  / positives

Unlike AUROC it is no sum over pairs: every image that enters changes the precision at all positives below it. The two
masses "at or above" are therefore kept for every distinct probability of a positive and brought up to date as images
enter: N x N_positive simple operations, half a second for 42,670 images with 8,225 positives. Beyond `WORK`
operations only `GRID` counts are exact, evenly spaced, and the others are interpolated linearly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.sorted_images import Cases, Weighted, as_index

Floats = NDArray[np.float64]
Index = NDArray[np.integer[Any]]

WORK = 1.2e9
GRID = 1000
COARSE = 25
FEW = 8  # as many images enter one by one; more are gathered first


class PositiveRanks:
    """The rank of every image among the G distinct probabilities of positive images.

    `count` is G; `of` (N,) says of how many of them the image's own probability is at or above.
    """

    def __init__(self, cases: Cases) -> None:
        steps = np.unique(cases.prob[cases.label])
        self.count = len(steps)
        self.of: Index = as_index(np.searchsorted(steps, cases.prob, side="right"))


def curve(w: Weighted) -> tuple[Floats, NDArray[np.bool_] | None]:
    """Average precision at every point (K,), NaN without positives; and which points are exact, None for all."""
    count = len(w.points)
    block, fraction = w.position
    if count * float(w.cases.index(PositiveRanks).count) <= WORK:
        return at(w, block, fraction), None
    chosen = np.unique(np.linspace(0, count - 1, GRID).round().astype(np.intp))
    known = at(w, block[chosen], fraction[chosen])
    exact = np.zeros(count, bool)
    exact[chosen] = True
    return np.interp(np.arange(count), chosen, known), exact


def coarse_area(w: Weighted, least: float) -> float:
    """Mean average precision over `COARSE` evenly spaced counts with `least` images of each class; NaN if none.

    For bootstrap replicates, where every count would take minutes; the area itself uses every count.
    """
    enough = np.flatnonzero(np.minimum(w.retained_positives, w.retained_negatives) >= least - 1e-9)
    if not len(enough):
        return np.nan
    chosen = np.unique(np.linspace(enough[0], len(w.points) - 1, COARSE).round().astype(np.intp))
    block, fraction = w.position
    return float(at(w, block[chosen], fraction[chosen]).mean())


def at(w: Weighted, block: Index, fraction: Floats) -> Floats:
    """Return the average precision at several points.

    Args:
        w: The weighted images.
        block: (K,) ascending: all blocks before it are retained.
        fraction: (K,) fraction of that block that is retained.

    Returns:
        (K,), NaN without positives.
    """
    state = _State(w)
    out = np.empty(len(block))
    ends = w.cases.ends
    first = np.where(block > 0, ends[np.maximum(block, 1) - 1] + 1, 0)
    places = zip(block.tolist(), fraction.tolist(), first.tolist(), (ends[block] + 1).tolist(), strict=True)
    ahead = -1
    for k, (b, f, start, end) in enumerate(places):
        if f == 1:
            state.enter(end)
            out[k] = state.value()
            continue
        if end - start == 1:  # no ties: the usual case, several times faster
            state.enter(start)
            out[k] = state.value_with_next(f)
            continue
        if b != ahead:
            state.enter(start)
            state.look_ahead(end)
            ahead = b
        out[k] = state.value_between(f)
    return out


class _State:
    """Masses at or above every distinct probability of a positive: of positives, and of all; and of positives at it."""

    def __init__(self, w: Weighted) -> None:
        ranks = w.cases.index(PositiveRanks)
        self.rank, self.size = ranks.of, ranks.count
        self.weight, self.label = w.weight, w.cases.label
        self.entered = 0
        self.now = np.zeros((3, self.size))
        self.now[1] = 1e-300  # so that 0 / 0 is 0; lost in the first addition
        self.more = np.zeros((3, self.size))
        self.quotient, self.divisor = np.empty(self.size), np.empty(self.size)
        self.base = self.gain = self.mixed = np.empty((3, 0))

    def enter(self, last: int) -> None:
        """Let the images up to `last` enter."""
        first, self.entered = self.entered, last
        self._add(self.now, first, last)

    def look_ahead(self, last: int) -> None:
        """Hold what the images up to `last` would add, at the probabilities of positives that then are in."""
        self.more[:] = 0
        self._add(self.more, self.entered, last)
        held = np.flatnonzero(self.now[2] + self.more[2])
        self.base, self.gain = self.now[:, held], self.more[:, held]
        self.mixed = np.empty((2, len(held)))

    def _add(self, masses: Floats, first: int, last: int) -> None:
        if last - first > FEW:
            part = slice(first, last)
            rank, weight, label = self.rank[part], self.weight[part], self.label[part]
            every = np.bincount(rank, weight, minlength=self.size + 1)
            ours = np.bincount(rank[label], weight[label], minlength=self.size + 1)
            masses[0] += np.cumsum(ours[:0:-1])[::-1]
            masses[1] += np.cumsum(every[:0:-1])[::-1]
            masses[2] += ours[1:]
            return
        for i in range(first, last):
            rank, weight = self.rank[i], self.weight[i]
            masses[1, :rank] += weight
            if self.label[i]:
                masses[0, :rank] += weight
                masses[2, rank - 1] += weight

    def value(self) -> float:
        """Average precision of the images entered."""
        above, called, here = self.now
        if not self.size or above[0] <= 0:
            return np.nan
        np.divide(above, called, out=self.quotient)
        return float(here.dot(self.quotient) / above[0])

    def value_with_next(self, fraction: float) -> float:
        """Average precision of the images entered and of this fraction of the next one."""
        above, called, here = self.now
        rank, label = self.rank[self.entered], self.label[self.entered]
        part = fraction * float(self.weight[self.entered])
        gain = part if label else 0.0
        if not self.size or above[0] + gain <= 0:
            return np.nan
        precision, divisor = self.quotient, self.divisor
        np.add(above[:rank], gain, out=precision[:rank])
        np.add(called[:rank], part, out=divisor[:rank])
        np.divide(precision[:rank], divisor[:rank], out=precision[:rank])
        np.divide(above[rank:], called[rank:], out=precision[rank:])
        own = part * precision[rank - 1] if label else 0.0
        return float((here.dot(precision) + own) / (above[0] + gain))

    def value_between(self, fraction: float) -> float:
        """Average precision with this fraction of what was looked ahead."""
        if not self.mixed.size:
            return np.nan
        np.multiply(self.gain[:2], fraction, out=self.mixed)
        self.mixed += self.base[:2]
        above, called = self.mixed
        positives = above[0]
        if positives <= 0:
            return np.nan
        np.divide(above, called, out=called)
        return float((self.base[2].dot(called) + fraction * self.gain[2].dot(called)) / positives)
