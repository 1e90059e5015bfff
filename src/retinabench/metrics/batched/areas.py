"""Batched areas under referral curves: the mean over all counts of what the retained images score.

Accuracy and NLL are means over the retained, so that their areas are weighted means over all images, see `Batch.share`.
The pairs that AUROC counts enter with the later image of the two; the area adds, for every image, the pairs that it
brings times the sum of 1 / (positive mass x negative mass) over the counts at which it is retained.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.batched.batch import Batch, block_of, ratio
from retinabench.metrics.selective.incremental_auroc import Pairs
from retinabench.metrics.selective.incremental_precision import COARSE, PositiveRanks
from retinabench.metrics.selective.referral_curves import MIN_CLASS
from retinabench.metrics.sorted_images import SLACK, Cases

MANY_STEPS = 1000
"""Distinct probabilities of positives above which rows are taken one by one, without the probabilities that a row lacks."""

Floats = NDArray[np.float64]
Index = NDArray[np.integer[Any]]


def accuracy_area(batch: Batch) -> Floats:
    """(R,) `referral_curves.area_of` the accuracy."""
    return 1 - _mean_over_points(batch, batch.cases.error.astype(np.float64))


def nll_area(batch: Batch) -> Floats:
    """(R,) `referral_curves.area_of` the NLL."""
    return _mean_over_points(batch, batch.cases.log_loss)


def _mean_over_points(batch: Batch, loss: Floats) -> Floats:
    return np.asarray(np.einsum("rn,n->r", batch.share, loss))


class Points(NamedTuple):
    """All points of the curves, (R, K) with the largest K: block, retained fraction of it, retained mass of each class.

    enough: at least `MIN_CLASS` images of each class are retained; False beyond the points of a row.
    """

    block: Index
    fraction: Floats
    positive: Floats
    negative: Floats
    enough: NDArray[np.bool_]


def points(batch: Batch) -> Points:
    """Return the points of all curves of a batch."""
    rows, most = len(batch.weight), int(batch.count.max())
    row = np.arange(rows)[:, None]
    # A point lies in the block whose number is that of the blocks passed before it.
    ends = np.bincount((batch.passed[:, 1:-1] + row * (most + 1)).ravel(), minlength=rows * (most + 1))
    block = np.cumsum(ends.reshape(rows, most + 1)[:, :most], axis=1)
    number = np.arange(1, most + 1)
    retained = number * batch.step[:, None]
    place = block + row * batch.mass.shape[1]
    mass, gained = _at(batch.mass, place)
    fraction = np.ones_like(mass)
    open_ = mass + gained - retained > SLACK * batch.total[:, None]
    np.divide(retained - mass, gained, out=fraction, where=open_)
    np.clip(fraction, 0.0, 1.0, out=fraction)
    positive, more = _at(batch.positive, place)
    positive += fraction * more
    negative = mass + fraction * gained - positive
    enough = np.minimum(positive, negative) >= MIN_CLASS - 1e-9
    enough &= number <= batch.count[:, None]
    return Points(block, fraction, positive, negative, enough)


def _at(sums: Floats, place: Index) -> tuple[Floats, Floats]:
    """Cumulated (R, B+1) sums before the blocks at flat places (R, K), and what the blocks add."""
    flat = sums.ravel()
    before = np.take(flat, place)
    return before, np.take(flat, place + 1) - before


def auroc_area(batch: Batch) -> Floats:
    """(R,) `referral_curves.area_of` the AUROC."""
    at = batch.derived(points)
    one = np.divide(1.0, at.positive * at.negative, out=np.zeros_like(at.fraction), where=at.enough)
    beyond = _sums_after(one)
    later = np.take_along_axis(beyond, batch.passed, axis=1)[:, 1:]
    within = _sums_of_blocks(at.fraction * one, batch.passed)
    pairs = batch.cases.index(Pairs)
    block = batch.cases.index(block_of)
    value = pairs.products(batch.weight, batch.weight * np.take(later + within, block, axis=1))
    if pairs.inner is not None:
        # Pairs inside a block grow as the square of its retained fraction.
        square = _sums_of_blocks(at.fraction**2 * one, batch.passed)
        value += pairs.inner_products(batch.weight, batch.weight * np.take(square - within, block, axis=1))
    entered = at.enough.sum(axis=1)
    return ratio(value, entered.astype(np.float64))


def _sums_after(values: Floats) -> Floats:
    """(R, K+1) sums of the columns at and after each, of (R, K); small late sums keep their precision."""
    sums = np.zeros((len(values), values.shape[1] + 1))
    np.cumsum(values[:, ::-1], axis=1, out=sums[:, -2::-1])
    return sums


def _sums_of_blocks(values: Floats, passed: Index) -> Floats:
    """(R, B) sums of (R, K) values at the points of each block."""
    after = np.take_along_axis(_sums_after(values), passed, axis=1)
    return after[:, :-1] - after[:, 1:]


def coarse_auprc_area(batch: Batch) -> Floats:
    """(R,) `incremental_precision.coarse_area`: the mean average precision at a few counts."""
    at = batch.derived(points)
    if not at.enough.any():
        return np.full(len(batch.weight), np.nan)
    first, last = np.argmax(at.enough, axis=1)[:, None], batch.count[:, None] - 1
    place = first + np.arange(COARSE) * ((last - first) / (COARSE - 1))
    place[:, -1] = last[:, 0]
    chosen = np.rint(place).astype(np.intp)
    block = np.take_along_axis(at.block, chosen, axis=1)
    fraction = np.take_along_axis(at.fraction, chosen, axis=1)
    precision = average_precision(batch, block, fraction)
    new = np.diff(chosen, axis=1, prepend=-1) > 0  # a short curve has fewer counts than are asked for
    mean = np.where(new, precision, 0.0).sum(axis=1) / new.sum(axis=1)
    return np.where(at.enough.any(axis=1), mean, np.nan)


class _Ranks(NamedTuple):
    """rank (N,): the first of the `steps` falling probabilities of positives that is not above the image's own; `steps` if none.

    positive: (P,) the positive images. start (B+1,): the first image of each block, and N.
    """

    steps: int
    rank: Index
    positive: Index
    start: Index


def _ranks(cases: Cases) -> _Ranks:
    ranks = cases.index(PositiveRanks)
    start = np.append(0, cases.ends + 1)
    return _Ranks(ranks.count, ranks.count - ranks.of, np.flatnonzero(cases.label), start)


def _held(ranks: _Ranks, weight: Floats) -> _Ranks:
    """The ranks among those probabilities at which a positive image has weight (N,)."""
    held = np.bincount(ranks.rank[ranks.positive], weight[ranks.positive], minlength=ranks.steps) > 0
    before = np.append(0, np.cumsum(held))
    return ranks._replace(steps=int(before[-1]), rank=before[ranks.rank])


def average_precision(batch: Batch, block: Index, fraction: Floats) -> Floats:
    """Return the average precision of the retained at M points of every row.

    Args:
        batch: The weighted images.
        block: (R, M) ascending: all blocks before it are retained.
        fraction: (R, M) fraction of that block that is retained.

    Returns:
        (R, M), NaN where no positive image is retained.
    """
    ranks = batch.cases.index(_ranks)
    rows, number = block.shape
    if ranks.steps > MANY_STEPS:
        if rows > 1:
            one_by_one = [Batch(batch.cases, row[None]) for row in batch.weight]
            parts = zip(one_by_one, block, fraction, strict=True)
            return np.concatenate([average_precision(one, b[None], f[None]) for one, b, f in parts])
        ranks = _held(ranks, batch.weight[0])
    # An image enters whole at the first point that retains its whole block. Before, at points that retain a part of
    # the block, its part enters and leaves again.
    whole = block + (fraction == 1)
    entry = _entries(ranks.start[whole], len(batch.cases))
    part = _parts(batch, block, fraction, ranks.start)
    size = number + 1, ranks.steps + 1
    row = np.arange(rows)[:, None]

    def masses(images: Index | slice, kept: NDArray[np.bool_] | slice) -> Floats:
        """(R, M, G) mass that has entered at each of the G probabilities."""
        bins = (row * size[0] + entry[:, images]) * size[1] + ranks.rank[images]
        mass = batch.weight[:, images].ravel()
        found = np.asarray(np.bincount(bins.ravel(), mass, minlength=rows * size[0] * size[1]), np.float64)
        if len(part.image):
            bins = part.point[kept] * size[1] + ranks.rank[part.image[kept]]
            np.add.at(found, bins, part.mass[kept])
            np.subtract.at(found, bins + size[1], part.mass[kept])
        entered = found.reshape(rows, *size)[:, :number, : ranks.steps]
        for point in range(1, number):
            entered[:, point] += entered[:, point - 1]
        return entered

    here = masses(ranks.positive, batch.cases.label[part.image])
    above, called = np.cumsum(here, axis=2), np.cumsum(masses(slice(None), slice(None)), axis=2)
    precision = np.divide(above, called, out=called, where=called > 0)
    value = np.einsum("rmg,rmg->rm", here, precision)
    whole_mass = above[:, :, -1]
    return ratio(value, whole_mass)


def _entries(starts: Index, images: int) -> Index:
    """(R, N) number of the first point at which each image has entered; at point m all images before starts (R, M) have."""
    rows = len(starts)
    marks = np.bincount(
        (starts + np.arange(rows)[:, None] * (images + 1)).ravel(), minlength=rows * (images + 1)
    )
    return np.asarray(np.cumsum(marks.reshape(rows, images + 1)[:, :images], axis=1))


class _Parts(NamedTuple):
    """Images retained in part at a point: number of the point (row x (M + 1) + point), image, mass retained."""

    point: Index
    image: Index
    mass: Floats


def _parts(batch: Batch, block: Index, fraction: Floats, start: Index) -> _Parts:
    row, point = np.nonzero(fraction < 1)
    first = start[block[row, point]]
    size = start[block[row, point] + 1] - first
    of = np.repeat(np.arange(len(row)), size)
    image = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size) + first[of]
    mass = batch.weight[row[of], image] * fraction[row, point][of]
    return _Parts(row[of] * (block.shape[1] + 1) + point[of], image, mass)
