"""What remains when the uncertain images go to an expert: curves over the number of referred images, and their areas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import BLUE, Row, Tabular, axes_or_new
from retinabench.metrics.ordered_pairs import Pairs
from retinabench.metrics.weighted_images import (
    SLACK,
    Batch,
    Cases,
    Weighted,
    as_index,
    block_of,
    cumulate,
    ratio,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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

    Shapes: `block` (K,), `fraction` (K,), returns (K,).
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


Metric = Literal["accuracy", "nll", "auroc", "auprc", "sensitivity", "specificity", "prevalence", "brier"]

MIN_CLASS = 10.0  # an AUROC or AUPRC of fewer images of a class is noise: such counts stay out of the area


@dataclass(frozen=True, eq=False)
class Curve(Tabular):
    """A metric over the fraction of images referred, nothing referred first.

    Args:
        metric: Name of the metric.
        rules: `corrected` or `published`.
        referred: (K,) fractions referred.
        value: (K,) the metric of the retained images, NaN where undefined.
        area: Mean of the value over the counts that enter it, NaN if none does.
        positives: (K,) weight of the retained positive images.
        negatives: (K,) weight of the retained negative images.
        reach: The largest fraction referred that enters the area.
        why: What is undefined, if anything.
        exact: None where every value is exact; else (K,) whether it is, the others being interpolated.

    Examples:
        >>> import retinabench as rb
        >>> curve = rb.referral_curve([0, 1, 1, 0], [0.1, 0.9, 0.4, 0.2], [0.3, 0.2, 0.9, 0.4], "accuracy")
        >>> curve.at(0.5)
        1.0
    """

    metric: str
    rules: str
    referred: Floats
    value: Floats
    area: float
    positives: Floats
    negatives: Floats
    reach: float = 1.0
    why: str | None = None
    exact: NDArray[np.bool_] | None = None

    def at(self, referred: float) -> float:
        """Value where at least this fraction is referred: the nearest count that does not retain more."""
        later = np.flatnonzero(self.referred >= referred - 1e-9)
        return float(self.value[later[0]]) if len(later) else np.nan

    def records(self) -> list[Row]:
        """Return one dictionary per fraction referred."""
        columns = {
            name: getattr(self, name).tolist() for name in ("referred", "value", "positives", "negatives")
        }
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def plot(self, axes: Axes | None = None, label: str | None = None) -> Axes:
        """Draw the curve as far as it enters the area and at least ten images are retained.

        Args:
            axes: Where to draw, such as those of another curve; None: a new figure.
            label: What a legend calls the curve.

        Returns:
            The axes.
        """
        new, axes = axes is None, axes_or_new(axes)
        enters = self.referred <= (self.reach if np.isfinite(self.reach) else 1) + 1e-9
        retained = self.positives + self.negatives
        enters &= retained >= min(MIN_CLASS, retained.max())
        color = BLUE if new else None  # else the next of the colours of these axes
        axes.plot(self.referred[enters], self.value[enters], color=color, label=label)
        axes.set(xlabel="fraction of images referred", ylabel=f"{self.metric} of the retained images")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        return axes


def curve_of(w: Weighted, metric: str) -> Curve:
    """`referral_curve` of sorted, weighted images."""
    value, exact = METRICS[metric](w)
    counts, why = _enter_area(w, metric, value)
    retained = w.points / w.total
    return Curve(
        metric=metric,
        rules="corrected",
        referred=np.arange(len(retained)) / len(retained),
        value=value[::-1],
        area=float(value[counts].mean()) if counts.any() else np.nan,
        positives=w.retained_positives[::-1],
        negatives=w.retained_negatives[::-1],
        reach=float(1 - retained[counts].min()) if counts.any() else np.nan,
        why=why,
        exact=None if exact is None else exact[::-1],
    )


def area_of(w: Weighted, metric: str) -> float:
    """Area under `curve_of`, the mean of its values over all retained counts, without the rest of it.

    References:
        Band et al., Benchmarking Bayesian deep learning on diabetic retinopathy detection tasks, NeurIPS (2021).
    """
    value, _ = METRICS[metric](w)
    counts, _ = _enter_area(w, metric, value)
    return float(value[counts].mean()) if counts.any() else np.nan


def value_at(w: Weighted, metric: str, referred: float) -> float:
    """Return one value of `curve_of`.

    References:
        Band et al., Benchmarking Bayesian deep learning on diabetic retinopathy detection tasks, NeurIPS (2021).
    """
    return curve_of(w, metric).at(referred)


def ranks_classes(metric: str) -> bool:
    """Whether the metric compares the two classes and needs enough of both."""
    return metric in ("auroc", "auprc")


def _enter_area(w: Weighted, metric: str, value: Floats) -> tuple[NDArray[np.bool_], str | None]:
    defined = np.isfinite(value)
    gaps = len(defined) - int(np.count_nonzero(defined))
    if ranks_classes(metric):
        smallest = np.minimum(w.retained_positives, w.retained_negatives)
        defined &= smallest >= MIN_CLASS - 1e-9
    if defined.any():
        return (
            defined,
            f"undefined at {gaps} of {len(value)} counts: a class is missing there" if gaps else None,
        )
    least = f"at least {MIN_CLASS:g} images of each class" if ranks_classes(metric) else "images of its class"
    return defined, f"needs {least}: here {w.positives:g} positive and {w.negatives:g} negative"


# -------------------------------------------------------------------------------------- values, (K,)


def _accuracy(w: Weighted) -> Floats:
    return np.asarray((w.points - w.retained_error) / w.points)


def _nll(w: Weighted) -> Floats:
    return np.asarray(w.along(w.weight * w.cases.log_loss) / w.points)


def _brier(w: Weighted) -> Floats:
    return np.asarray(w.along(w.weight * (w.cases.prob - w.cases.label) ** 2) / w.points)


def _sensitivity(w: Weighted) -> Floats:
    return _share(w.along(w.positive * w.cases.called), w.retained_positives)


def _specificity(w: Weighted) -> Floats:
    return _share(w.along(w.negative * ~w.cases.called), w.retained_negatives)


def _prevalence(w: Weighted) -> Floats:
    return np.asarray(w.retained_positives / w.points)


def _auroc(w: Weighted) -> Floats:
    """Pairs: those of the blocks entered, then of the block at the threshold with its fraction f.

    Pairs between it and the blocks before grow as f, pairs inside it as f^2.
    """
    total, inside = w.cases.index(Pairs).cumulate(w.weight)
    block, fraction = w.position
    across = total[block + 1] - total[block] - inside[block]
    ordered = total[block] + fraction * (across + fraction * inside[block])
    return _share(ordered, w.retained_positives * w.retained_negatives)


def _share(part: Floats, whole: Floats) -> Floats:
    return np.asarray(np.divide(part, whole, out=np.full(len(part), np.nan), where=whole > 0))


def _always(values: Callable[[Weighted], Floats]) -> Callable[[Weighted], tuple[Floats, None]]:
    return lambda w: (values(w), None)


METRICS: dict[str, Callable[[Weighted], tuple[Floats, NDArray[np.bool_] | None]]] = {
    "accuracy": _always(_accuracy),
    "nll": _always(_nll),
    "auroc": _always(_auroc),
    "auprc": curve,
    "sensitivity": _always(_sensitivity),
    "specificity": _always(_specificity),
    "prevalence": _always(_prevalence),
    "brier": _always(_brier),
}

MANY_STEPS = 1000

"""Distinct probabilities of positives above which rows are taken one by one, without the probabilities that a row lacks."""


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

    Shapes: `block` (R, M), `fraction` (R, M), returns (R, M).
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


class _Retained(NamedTuple):
    """Some points of the curves, (R, M): block of each, and the retained fraction of that block."""

    block: Index
    fraction: Floats

    def of(self, sums: Floats) -> Floats:
        """(R, M) retained part of a mass, of which `sums` (R, B+1) is the sum over the blocks before."""
        before = np.take_along_axis(sums, self.block, axis=1)
        after = np.take_along_axis(sums, self.block + 1, axis=1)
        return np.asarray(before + self.fraction * (after - before))


def referral_on_grid(batch: Batch, grid: Floats, fewest: float) -> dict[str, Floats]:
    """Return accuracy, AUROC and NLL of the retained images, between two points of the curve linearly.

    Shapes: `grid` (G,), returns (R, G).
    """
    asked = (1 - grid) * batch.total[:, None]
    number = np.clip((asked / batch.step[:, None]).astype(np.intp), 1, batch.count[:, None])
    # The quotient may round up to the next point, or down from the one that is asked for.
    number -= (number > 1) & (number * batch.step[:, None] > asked)
    number += (number < batch.count[:, None]) & ((number + 1) * batch.step[:, None] <= asked)
    following = np.minimum(number + 1, batch.count[:, None])
    sides = [_values(batch, chosen, fewest) for chosen in (number, following)]
    low, high = number * batch.step[:, None], following * batch.step[:, None]
    on_it = (asked == low) | (following == number)
    found = {}
    with np.errstate(invalid="ignore", divide="ignore"):
        for name, before in sides[0].items():
            between = (sides[1][name] - before) / (high - low) * (asked - low) + before
            found[name] = np.where(asked < low, np.nan, np.where(on_it, before, between))
    return found


def _values(batch: Batch, number: Index, fewest: float) -> dict[str, Floats]:
    """Accuracy, AUROC and NLL (R, M) at points of the curves, NaN where too few images are retained."""
    every = batch.derived(points)
    block = np.take_along_axis(every.block, number - 1, axis=1)
    fraction = np.take_along_axis(every.fraction, number - 1, axis=1)
    at = _Retained(block, fraction)
    kept = number * batch.step[:, None]
    positive = at.of(batch.positive)
    negative = at.of(batch.mass) - positive
    total, inside = batch.derived(_pairs)
    own = np.take_along_axis(inside, block, axis=1)
    before, after = (np.take_along_axis(total, block + k, axis=1) for k in (0, 1))
    ordered = before + fraction * (after - before - own + fraction * own)
    few = kept < np.maximum(MIN_CLASS, fewest * batch.total)[:, None] - 1e-9
    few_of_a_class = few | (np.minimum(positive, negative) < MIN_CLASS - 1e-9)
    return {
        "accuracy": np.where(few, np.nan, (kept - at.of(batch.wrong)) / kept),
        "auroc": np.where(few_of_a_class, np.nan, ratio(ordered, positive * negative)),
        "nll": np.where(few, np.nan, at.of(batch.derived(_log_loss)) / kept),
    }


def _pairs(batch: Batch) -> tuple[Floats, Floats]:
    return batch.cases.index(Pairs).cumulate(batch.weight)


def _log_loss(batch: Batch) -> Floats:
    return batch.block_sums(batch.weight * batch.cases.log_loss)


def sensitivity_on_grid(batch: Batch, rates: Floats) -> Floats:
    """Return (R, G) `classification.sensitivity_within` false-positive rates (G,)."""
    ranking = batch.cases.by_prob
    label, ends = batch.cases.label[ranking.order], np.append(0, ranking.ends + 1)
    negative = np.take(cumulate(batch.by_prob * ~label), ends, axis=1)
    positive = np.take(cumulate(batch.by_prob * label), ends, axis=1)
    both = (batch.positives > 0) & (batch.negatives > 0)
    false = negative / np.where(both, batch.negatives, 1.0)[:, None]
    last = np.stack([np.searchsorted(row, rates + 1e-12, side="right") - 1 for row in false])
    hit = np.take_along_axis(positive, last, axis=1) / np.where(both, batch.positives, 1.0)[:, None]
    return np.where(both[:, None], hit, np.nan)
