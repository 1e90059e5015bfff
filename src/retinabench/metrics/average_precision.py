"""Average precision of the retained images: at every count of one weighting, and at a few counts of many.

**Average precision** is no sum over pairs: every image that enters changes the precision at all positives below it,

    AP = sum over retained positives i of  w_i x (positives at or above p_i) / (all at or above p_i)  / positives

The two masses "at or above" are therefore kept for every distinct probability of a positive and brought up to date as images
enter: N x N_positive simple operations, half a second for 42,670 images with 8,225 positives. Beside few counts they are
added up for all counts at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from retinabench.metrics.ordered_pairs import Pairs
from retinabench.metrics.weighted_images import LEAST, Bools, Cases, Floats, Index, Points, Weighted, as_index, ratio

FEW = 8  # as many images enter one by one; more are gathered first
MANY_STEPS = 1000
"""Distinct probabilities of positives above which rows are taken one by one, without the probabilities that a row lacks."""


class PositiveRanks:
    """The rank of every image among the G distinct probabilities of positive images.

    `count` is G; `of` (N,) says of how many of them the image's own probability is at or above.
    """

    def __init__(self, cases: Cases) -> None:
        steps = np.unique(cases.prob[cases.label])
        self.count = len(steps)
        self.of: Index = as_index(np.searchsorted(steps, cases.prob, side="right"))


def average_precision_at(w: Weighted, at: Points) -> Floats:
    """Return the average precision (M,) of one weighting at ascending points, NaN without positives."""
    state = _Entered(w)
    block, fraction = at.block, at.fraction
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


class _Entered:
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


# -------------------------------------------------------- average precision at a few counts of many weightings


def precision_at_few(w: Weighted, at: Points) -> Floats:
    """Return the (R, M) average precision of the retained at M ascending points of every row, NaN where no positive image is retained."""
    tails = w.cases.index(_tails) if len(w.cases.positive_steps) > MANY_STEPS else None
    return _of_any_order(w, at) if tails is None else tails.precision(w, at)


class _Tails(NamedTuple):
    """Where the images of each block lie that enter from both ends of the probability scale inwards.

    upper (B+1,): how many of the distinct probabilities, from the highest, the blocks before hold. lower (B+1,): from which one on
    they hold all. of_upper, of_lower: the same among the distinct probabilities of positive images.
    """

    upper: Index
    lower: Index
    of_upper: Index
    of_lower: Index

    def precision(self, w: Weighted, at: Points) -> Floats:
        """`precision_at_few`: the precision at an image of the upper tail is the same at all points, and that at an image of the
        lower tail lacks the masses between the tails.
        """
        positives, retained = at.retained(w.positive_mass), at.retained(w.mass)
        excluded = np.stack([w.positives[:, None] - positives, w.total[:, None] - retained], axis=-1)
        gained = np.empty_like(positives)
        for row, (hit, called) in enumerate(zip(w.positives_called, w.called, strict=True)):
            masses, here = np.stack([hit[1:], called[w.cases.positive_steps]]), np.diff(hit)
            alone = np.append(0.0, np.cumsum(here * masses[0] / np.maximum(masses[1], LEAST)))
            for point, (block, out) in enumerate(zip(at.block[row].tolist(), excluded[row], strict=True)):
                upper, lower = self.of_upper[block : block + 2], self.of_lower[block : block + 2]
                below = slice(lower[0], None)
                gain = alone[upper[0]] + _gain(here[below], masses[:, below] - out[:, None])
                # Then the block itself: its part of the upper tail, and below it that of the lower one.
                fraction, inner = at.fraction[row, point], np.array([[hit[upper[0]]], [called[self.upper[block]]]])
                if upper[1] > upper[0]:
                    part = slice(*upper)
                    gain += fraction * _gain(here[part], inner + fraction * (masses[:, part] - inner))
                if lower[1] < lower[0]:
                    part = slice(lower[1], lower[0])
                    end = np.array([[hit[upper[1]]], [called[self.upper[block + 1]]]])
                    start = np.array([[hit[lower[1]]], [called[self.lower[block + 1]]]])
                    gain += fraction * _gain(here[part], inner + fraction * (end - inner + masses[:, part] - start))
                gained[row, point] = gain
        return ratio(gained, positives)


def _gain(here: Floats, masses: Floats) -> float:
    """Sum over (P,) masses of positive images times the precision there, by the positive and all masses (2, P) at or above."""
    return float(np.einsum("p,p->", here, masses[0] / np.maximum(masses[1], LEAST)))


def _tails(cases: Cases) -> _Tails | None:
    """None unless the images enter from both ends inwards, and images of equal probability together."""
    ranking, blocks = cases.by_prob, len(cases.ends)
    block = np.repeat(np.arange(blocks), np.diff(cases.ends, prepend=-1))[ranking.order]
    starts = np.append(0, ranking.ends[:-1] + 1)
    of_step = block[ranking.ends]
    if not cases.index(Pairs).tails or (np.minimum.reduceat(block, starts) < np.maximum.reduceat(block, starts)).any():
        return None
    low = ranking.values < cases.prob[-1]
    before = (np.append(0, np.cumsum(np.bincount(of_step[part], minlength=blocks))) for part in (~low, low))
    upper, lower = next(before), len(ranking.ends) - next(before)
    return _Tails(upper, lower, *(np.searchsorted(cases.positive_steps, step, side="right") for step in (upper, lower)))


class _Ranks(NamedTuple):
    """rank (N,): the first of the `steps` falling probabilities of positives that is not above the image's own; `steps` if none.

    positive: (P,) the positive images. start (B+1,): the first image of each block, and N.
    """

    steps: int
    rank: Index
    positive: Index
    start: Index

    def held(self, weight: Floats) -> _Ranks:
        """The ranks among those probabilities at which a positive image has weight (N,)."""
        held = np.bincount(self.rank[self.positive], weight[self.positive], minlength=self.steps) > 0
        before = np.append(0, np.cumsum(held))
        return self._replace(steps=int(before[-1]), rank=before[self.rank])


def _ranks(cases: Cases) -> _Ranks:
    ranks = cases.index(PositiveRanks)
    start = np.append(0, cases.ends + 1)
    return _Ranks(ranks.count, ranks.count - ranks.of, np.flatnonzero(cases.label), start)


def _of_any_order(w: Weighted, at: Points) -> Floats:
    """`precision_at_few` of images in any order of uncertainty."""
    ranks = w.cases.index(_ranks)
    block, fraction = at.block, at.fraction
    rows, number = block.shape
    if ranks.steps > MANY_STEPS:
        if rows > 1:
            single = zip(w.weight[:, None], block[:, None], fraction[:, None], strict=True)
            return np.concatenate(
                [_of_any_order(Weighted(w.cases, row), Points(b, f, at.blocks)) for row, b, f in single]
            )
        ranks = ranks.held(w.weight[0])
    # An image enters whole at the first point that retains its whole block. Before, at points that retain a part of
    # the block, its part enters and leaves again.
    whole = block + (fraction == 1)
    entry = _entries(ranks.start[whole], len(w.cases))
    part = _parts(w.weight, at, ranks.start)
    size = number + 1, ranks.steps + 1
    row = np.arange(rows)[:, None]

    def masses(images: Index | slice, kept: Bools | slice) -> Floats:
        """(R, M, G) mass that has entered at each of the G probabilities."""
        bins = (row * size[0] + entry[:, images]) * size[1] + ranks.rank[images]
        mass = w.weight[:, images].ravel()
        found = np.asarray(np.bincount(bins.ravel(), mass, minlength=rows * size[0] * size[1]), np.float64)
        if len(part.image):
            bins = part.point[kept] * size[1] + ranks.rank[part.image[kept]]
            np.add.at(found, bins, part.mass[kept])
            np.subtract.at(found, bins + size[1], part.mass[kept])
        entered = found.reshape(rows, *size)[:, :number, : ranks.steps]
        for point in range(1, number):
            entered[:, point] += entered[:, point - 1]
        return entered

    here = masses(ranks.positive, w.cases.label[part.image])
    above, called = np.cumsum(here, axis=2), np.cumsum(masses(slice(None), slice(None)), axis=2)
    precision = np.divide(above, called, out=called, where=called > 0)
    return ratio(np.einsum("rmg,rmg->rm", here, precision), above[:, :, -1])


def _entries(starts: Index, images: int) -> Index:
    """(R, N) number of the first point at which each image has entered; at point m all images before starts (R, M) have."""
    rows = len(starts)
    marks = np.bincount((starts + np.arange(rows)[:, None] * (images + 1)).ravel(), minlength=rows * (images + 1))
    return np.asarray(np.cumsum(marks.reshape(rows, images + 1)[:, :images], axis=1))


class _Parts(NamedTuple):
    """Images retained in part at a point: number of the point (row x (M + 1) + point), image, mass retained."""

    point: Index
    image: Index
    mass: Floats


def _parts(weight: Floats, at: Points, start: Index) -> _Parts:
    row, point = np.nonzero(at.fraction < 1)
    block = at.block[row, point]
    first = start[block]
    size = start[block + 1] - first
    of = np.repeat(np.arange(len(row)), size)
    image = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size) + first[of]
    mass = weight[row[of], image] * at.fraction[row, point][of]
    return _Parts(row[of] * (at.block.shape[1] + 1) + point[of], image, mass)
