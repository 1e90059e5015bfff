"""Average precision of the retained images at every referral count.

    AP = sum over retained positives i of  w_i x (positives at or above p_i) / (all at or above p_i)  / positives

Unlike AUROC it is no sum over pairs: every image that enters changes the precision at all positives below it. The two
masses "at or above" are therefore kept for every distinct probability of a positive and brought up to date as images
enter: N x N_positive simple operations, half a second for 42,670 images with 8,225 positives. Beyond `WORK`
operations only `GRID` counts are exact, evenly spaced, and the others are interpolated linearly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from retinabench.metrics.sorted_images import Weighted

Floats = NDArray[np.float64]
Index = NDArray[np.intp]

WORK = 1.2e9
GRID = 1000
COARSE = 25
FEW = 8  # as many images enter one by one; more are gathered first


class Heights:
    """Where every image stands among the G distinct probabilities of positives, ascending: it is at or above `of` of them."""

    def __init__(self, label: NDArray[np.bool_], prob: Floats) -> None:
        steps = np.unique(prob[label])
        self.count = len(steps)
        self.of: Index = np.searchsorted(steps, prob, side="right")


def curve(w: Weighted) -> tuple[Floats, NDArray[np.bool_] | None]:
    """Average precision at every point (K,), NaN without positives; and which points are exact, None for all."""
    count = len(w.points)
    block, fraction = w.position
    if count * float(w.cases.heights.count) <= WORK:
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
    """Average precision with all blocks before `block` retained and `fraction` of that one; (K,), blocks ascending."""
    state = _State(w)
    out = np.empty(len(block))
    starts = [0, *(w.cases.ends + 1).tolist()]
    ahead = -1
    for k, (b, f) in enumerate(zip(block.tolist(), fraction.tolist(), strict=True)):
        if f == 1:
            state.enter(starts[b + 1])
            out[k] = state.value()
            continue
        if starts[b + 1] - starts[b] == 1:  # no ties: the usual case, several times faster
            state.enter(starts[b])
            out[k] = state.value_with_next(f)
            continue
        if b != ahead:
            state.enter(starts[b])
            state.look_ahead(starts[b + 1])
            ahead = b
        out[k] = state.value_between(f)
    return out


class _State:
    """Masses at or above every distinct probability of a positive: of positives, and of all; and of positives at it."""

    def __init__(self, w: Weighted) -> None:
        heights = w.cases.heights
        self.height, self.size = heights.of, heights.count
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
            height, weight, label = self.height[part], self.weight[part], self.label[part]
            every = np.bincount(height, weight, minlength=self.size + 1)
            ours = np.bincount(height[label], weight[label], minlength=self.size + 1)
            masses[0] += np.cumsum(ours[:0:-1])[::-1]
            masses[1] += np.cumsum(every[:0:-1])[::-1]
            masses[2] += ours[1:]
            return
        for i in range(first, last):
            height, weight = self.height[i], self.weight[i]
            masses[1, :height] += weight
            if self.label[i]:
                masses[0, :height] += weight
                masses[2, height - 1] += weight

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
        height, label = self.height[self.entered], self.label[self.entered]
        part = fraction * float(self.weight[self.entered])
        gain = part if label else 0.0
        if not self.size or above[0] + gain <= 0:
            return np.nan
        precision, divisor = self.quotient, self.divisor
        np.add(above[:height], gain, out=precision[:height])
        np.add(called[:height], part, out=divisor[:height])
        np.divide(precision[:height], divisor[:height], out=precision[:height])
        np.divide(above[height:], called[height:], out=precision[height:])
        own = part * precision[height - 1] if label else 0.0
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
