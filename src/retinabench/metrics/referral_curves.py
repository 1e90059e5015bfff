"""What remains when the uncertain images go to an expert: curves over every number of referred images, and their areas.

Images are referred in the order of their uncertainty, the largest first. With n images the curve has a value for
0, 1, … n-1 referred. Ties in uncertainty are shared evenly (see `weighted_images`), so that no value depends on the order
of the rows.

The area of a mean is a weighted sum over images, and that of AUROC without ties one over the images within reach: neither
needs the curve.

**Average precision** is no sum over pairs: every image that enters changes the precision at all positives below it,

    AP = sum over retained positives i of  w_i x (positives at or above p_i) / (all at or above p_i)  / positives

The two masses "at or above" are therefore kept for every distinct probability of a positive and brought up to date as images
enter: N x N_positive simple operations, half a second for 42,670 images with 8,225 positives. Beyond `WORK` operations only
`GRID` counts are exact, evenly spaced, and the others are interpolated linearly. Bootstrap replicates evaluate `COARSE` counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import BLUE, Row, Tabular, axes_or_new
from retinabench.metrics.classification import precision
from retinabench.metrics.ordered_pairs import Pairs
from retinabench.metrics.weighted_images import SLACK, Bools, Cases, Floats, Index, Points, Weighted, harmonic, ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Metric = Literal["accuracy", "nll", "auroc", "auprc", "sensitivity", "specificity", "prevalence", "brier"]
MIN_CLASS = 10.0  # images of each class below which curves draw no AUROC or AUPRC: it would be noise
REACH = 0.5
"""The largest share referred that enters the areas of AUROC and AUPRC.

A reach that depended on the images, such as "as long as ten of each class remain", would make the expected area depend on their number.
"""
WORK = 1.2e9
GRID = 1000
COARSE = 25
FEW = 8  # as many images enter one by one; more are gathered first
MANY_STEPS = 1000
"""Distinct probabilities of positives above which rows are taken one by one, without the probabilities that a row lacks."""

MEANS: dict[str, Callable[[Cases], NDArray[Any]]] = {
    "accuracy": lambda cases: (~cases.error).astype(np.float64),
    "nll": lambda cases: cases.log_loss,
    "brier": lambda cases: cases.squared_error,
}
"""The value (N,) of which the metric is the mean."""


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
    why: str | None = None
    exact: Bools | None = None

    def at(self, referred: float, of: Literal["value", "positives", "negatives"] = "value") -> float:
        """Value where at least this fraction is referred: the nearest count that does not retain more."""
        later = np.flatnonzero(self.referred >= referred - 1e-9)
        return float(getattr(self, of)[later[0]]) if len(later) else np.nan

    def records(self) -> list[Row]:
        names = ("referred", "value", "positives", "negatives")
        columns = (getattr(self, name).tolist() for name in names)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def plot(self, axes: Axes | None = None, label: str | None = None) -> Axes:
        """Draw the curve on `axes` (None: a new figure), as far as ten images are retained; of AUROC and AUPRC ten of each class."""
        new, axes = axes is None, axes_or_new(axes)
        retained = self.positives + self.negatives
        if ranks_classes(self.metric):
            retained = np.minimum(self.positives, self.negatives)
        enters = retained >= min(MIN_CLASS, retained.max())
        color = BLUE if new else None  # else the next of the colours of these axes
        axes.plot(self.referred[enters], self.value[enters], color=color, label=label)
        axes.set(xlabel="fraction of images referred", ylabel=f"{self.metric} of the retained images")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        return axes


def curve_of(w: Weighted, metric: str) -> Curve:
    value = w.derived(_VALUES[metric])
    exact = w.derived(auprc_values)[1] if metric == "auprc" else None
    area = float(area_of(w, metric))
    return Curve(
        metric=metric, rules="corrected", referred=np.arange(len(value)) / len(value), value=value[::-1], area=area,
        positives=w.retained_positives[::-1], negatives=w.retained_negatives[::-1],
        why=_why_undefined(w, metric, value, area), exact=None if exact is None else exact[::-1],
    )  # fmt: skip


def area_of(w: Weighted, metric: str) -> Floats:
    """Area (...,) under the curve: the mean of its values over all counts at which it is defined; NaN if at none.

    Of AUROC and AUPRC the mean over the counts that retain at least half of the images; NaN unless both classes remain there.

    References:
        Band et al., Benchmarking Bayesian deep learning on diabetic retinopathy detection tasks, NeurIPS (2021).
    """
    closed = metric == "auroc" and w.whole_rows.any()
    if w.weight.ndim > 1 and (metric == "auprc" or (closed and not w.whole)):
        return np.array([area_of(Weighted(w.cases, row), metric) for row in w.weight])
    if metric in MEANS:
        return np.asarray(np.einsum("...n,n->...", w.mean_factor, MEANS[metric](w.cases)) / w.total)[()]
    if closed:
        return np.where(w.derived(_both_within_reach), _area_of_ranks(w), np.nan)[()]
    value = w.derived(_VALUES[metric])
    if not ranks_classes(metric):
        return _mean(value, np.isfinite(value) & w.there)
    within = np.arange(value.shape[-1]) >= _before_reach(w)[..., None]
    return np.where(w.derived(_both_within_reach), _mean(value, within & w.there), np.nan)[()]


def value_at(w: Weighted, metric: str, referred: float) -> Floats:
    """Return the value (...,) of the curve where at least this fraction is referred, NaN where undefined.

    References:
        Band et al., Benchmarking Bayesian deep learning on diabetic retinopathy detection tasks, NeurIPS (2021).
    """
    value, retained = w.derived(_VALUES[metric]), w.count - np.ceil(w.count * (referred - 1e-9)).astype(np.intp)
    last = np.take_along_axis(value, np.maximum(retained, 1)[..., None] - 1, axis=-1)[..., 0]
    return np.where(retained > 0, last, np.nan)[()]


def ranks_classes(metric: str) -> bool:
    return metric in ("auroc", "auprc")


def values_on_grid(
    w: Weighted, grid: Floats, fewest: float, metrics: Sequence[str] = ("accuracy", "auroc", "nll")
) -> dict[str, Floats]:
    """Return metrics of the retained images on a grid of shares referred, between two points of the curve linearly.

    At least the share `fewest` of the images and ten of them are retained, for AUROC and AUPRC ten of each class; else NaN.
    Shapes: `grid` (G,), returns (..., G); AUPRC of one weighting only.
    """
    count, step = w.count[..., None], w.step[..., None]
    asked = np.asarray((1 - grid) * w.total[..., None])
    number = np.clip((asked / step).astype(np.intp), 1, count)
    # The quotient may round up to the next point, or down from the one that is asked for.
    number -= (number > 1) & (number * step > asked)
    number += (number < count) & ((number + 1) * step <= asked)
    following = np.minimum(number + 1, count)
    low, high = number * step, following * step
    on_it = (asked == low) | (following == number)
    least = np.maximum(MIN_CLASS, fewest * w.total)[..., None] - 1e-9
    found = {}
    for name in metrics:
        value = w.derived(_VALUES[name])
        retained = np.minimum(w.retained_positives, w.retained_negatives) if ranks_classes(name) else w.points
        value = np.where((retained >= MIN_CLASS - 1e-9) & (w.points >= least), value, np.nan)
        before, after = (np.take_along_axis(value, side - 1, axis=-1) for side in (number, following))
        with np.errstate(invalid="ignore", divide="ignore"):
            between = (after - before) / (high - low) * (asked - low) + before
        found[name] = np.where(asked < low, np.nan, np.where(on_it, before, between))
    return found


def _before_reach(w: Weighted) -> Index:
    """(...,) number of the counts that retain too few images to enter the areas of AUROC and AUPRC."""
    return np.asarray(np.ceil((1 - REACH) * (1 - SLACK) * w.total / w.step).astype(np.intp) - 1)


def _both_within_reach(w: Weighted) -> Bools:
    """(...,) whether both classes are retained at every count that enters the areas of AUROC and AUPRC."""
    last = w.derived(_last_within_reach)
    positives = last.retained(w.positive_mass)
    return np.asarray(np.minimum(positives, last.retained(w.mass) - positives)[..., 0] > 0)


def _last_within_reach(w: Weighted) -> Points:
    return w.locate(np.asarray((_before_reach(w) + 1) * w.step)[..., None])


def _area_of_ranks(w: Weighted) -> Floats:
    """(...,) mean AUROC over the counts within reach, for whole weights.

    Where a block of positive images enters, its share of the pairs is slope + rest / x at the positive mass x, over the negative
    mass, which stays: the sum over its counts is a difference of harmonic numbers. Of a negative block the classes are
    exchanged. The counts inside blocks of both classes are taken one by one.
    """
    before = _before_reach(w)[..., None]
    places = w.derived(_last_within_reach).block.ravel()
    first = int(places.min())
    pairs, inside = _ordered_pairs(w)
    pairs, mass, positive = pairs[..., first:], w.mass[..., first:], w.positive_mass[..., first:]
    other = np.where(w.cases.label[w.cases.ends[first:]], (mass - positive)[..., :-1], positive[..., :-1])
    slope = np.diff(pairs) / np.maximum(np.diff(mass), 1)
    rest = pairs[..., :-1] - slope * (mass[..., :-1] - other)
    retained, sums = np.maximum(mass, before), harmonic(int(np.max(w.count)).bit_length())
    inverse = np.take(sums, np.maximum(retained[..., 1:] - other, 0).astype(np.intp))
    inverse -= np.take(sums, np.maximum(retained[..., :-1] - other, 0).astype(np.intp))
    share = (slope * np.diff(retained) + rest * inverse) / np.maximum(other, 1)
    if inside is not None:
        block, own = inside
        later = block >= first
        share[..., block[later] - first] = _sums_inside(
            block[later] - first, own[..., later], pairs, mass, positive, retained
        )
    # Each row from its own first place, so that its sum is the same beside any others.
    rows = np.arange(len(places)) * share.shape[-1]
    area = np.add.reduceat(share.ravel(), np.stack([rows, rows + places - first], axis=1).ravel())[1::2]
    return np.asarray(area.reshape(w.count.shape) / (w.count - before[..., 0]))


def _sums_inside(block: Index, own: Floats, pairs: Floats, mass: Floats, positive: Floats, retained: Floats) -> Floats:
    """(..., M) sum of the AUROC over the counts inside each of M blocks of both classes; see `_auroc`."""
    start, gained = np.take(retained, block, axis=-1), np.take(np.diff(mass), block, axis=-1)
    counts = (np.take(retained, block + 1, axis=-1) - start).astype(np.intp)
    at = np.repeat(np.arange(counts.size), counts.ravel())

    def before(sums: Floats) -> Floats:
        return np.take(sums, block, axis=-1).ravel()[at]

    def more(sums: Floats) -> Floats:
        return np.take(np.diff(sums), block, axis=-1).ravel()[at]

    number = start.ravel()[at] + 1 + np.arange(len(at)) - np.repeat(np.cumsum(counts) - counts.ravel(), counts.ravel())
    fraction = (number - before(mass)) / gained.ravel()[at]
    inner = own.ravel()[at]
    ordered = before(pairs) + fraction * (more(pairs) - inner + fraction * inner)
    positives = before(positive) + fraction * more(positive)
    values = ratio(ordered, positives * (number - positives))
    return np.asarray(np.bincount(at, np.nan_to_num(values), counts.size).reshape(counts.shape), np.float64)


def _ordered_pairs(w: Weighted) -> tuple[Floats, tuple[Index, Floats] | None]:
    """`Pairs.cumulate` of whole weights (..., B+1), of two tails by three sums of integers; and the blocks (M,) of both classes
    with the pairs inside them (..., M).
    """
    index, label, ends = w.cases.derived(Pairs), w.cases.label, w.cases.ends
    inner = index.inner
    if not index.tails:
        pairs, inside = index.cumulate(w.weight, whole=True)
        return pairs, None if inner is None or inside is None else (inner.block, inside[..., inner.block])
    lower = w.cases.prob < w.cases.prob[-1]
    below, above = (np.cumsum(w.numbers * met, axis=-1, dtype=np.int32) for met in (lower & ~label, label & ~lower))
    met = np.multiply(np.where(label, below, above), w.numbers, dtype=np.float64 if index.ties else np.int64)
    for step in index.ties:
        met[..., step.target] += index.tie_sign[step.target] * w.weight[..., step.target] * step.gain(w.numbers.T).T
    pairs = np.zeros((*met.shape[:-1], len(ends) + 1))
    sums = np.cumsum(met, axis=-1)
    pairs[..., 1:] = sums if len(ends) == len(label) else np.take(sums, ends, axis=-1)
    return pairs, None if inner is None else (inner.block, inner.pairs(w.weight.T, w.numbers.T))


def _mean(value: Floats, enters: Bools) -> Floats:
    number = np.count_nonzero(np.atleast_2d(enters), axis=1)
    some = number > 0
    mean = np.full(len(number), np.nan)
    if some.any():
        starts = (np.cumsum(number) - number)[some]
        mean[some] = np.add.reduceat(value[enters], starts) / number[some]
    return mean.reshape(value.shape[:-1])[()]


def _why_undefined(w: Weighted, metric: str, value: Floats, area: float) -> str | None:
    if np.isfinite(area):
        gaps = int(np.count_nonzero(~np.isfinite(value)))
        return f"undefined at {gaps} of {len(value)} counts: a class is missing there" if gaps else None
    least = f"images of both classes where {REACH:.0%} are referred" if ranks_classes(metric) else "images of its class"
    return f"needs {least.replace('%', ' %')}: here {w.positives:g} positive and {w.negatives:g} negative in all"


def _mean_of(w: Weighted, values: Floats) -> Floats:
    return np.asarray(w.along(w.block_sums(w.weight * values)) / w.points)


def _auroc(w: Weighted) -> Floats:
    """Pairs: those of the blocks entered, then of the block at the threshold with its fraction f.

    Pairs between it and the blocks before grow as f, pairs inside it as f^2.
    """
    total, inside = w.cases.derived(Pairs).cumulate(w.weight, whole=w.whole)
    before, gained = w.at_points.split(total)
    fraction = w.at_points.fraction
    if inside is None:  # no ties: a block is one image
        ordered = before + fraction * gained
    else:
        own = np.take_along_axis(inside, w.at_points.block, axis=-1)
        ordered = before + fraction * (gained - own + fraction * own)
    return ratio(ordered, w.retained_positives * w.retained_negatives)


METRICS: dict[str, Callable[[Weighted], Floats]] = {
    "accuracy": lambda w: np.asarray((w.points - w.along(w.wrong_mass)) / w.points),
    "nll": lambda w: _mean_of(w, w.cases.log_loss),
    "auroc": _auroc,
    "auprc": lambda w: w.derived(auprc_values)[0],
    "sensitivity": lambda w: ratio(w.along(w.block_sums(w.positive * w.cases.called)), w.retained_positives),
    "specificity": lambda w: ratio(w.along(w.block_sums(w.negative * ~w.cases.called)), w.retained_negatives),
    "prevalence": lambda w: np.asarray(w.retained_positives / w.points),
    "brier": lambda w: _mean_of(w, w.cases.squared_error),
}
# Of `grades.GradedCases` there is one more.
_VALUES = METRICS | {"grade_error": lambda w: _mean_of(w, w.cases.grade_error)}


def auprc_values(w: Weighted) -> tuple[Floats, Bools | None]:
    """Average precision of one weighting at every point (K,), NaN without positives; and which points are exact, None for all."""
    count = len(w.points)
    if count * float(len(w.cases.positive_steps)) <= WORK:
        return average_precision_at(w, w.at_points), None
    chosen = np.unique(np.linspace(0, count - 1, GRID).round().astype(np.intp))
    known = average_precision_at(w, w.at_points.chosen(chosen))
    exact = np.zeros(count, bool)
    exact[chosen] = True
    return np.interp(np.arange(count), chosen, known), exact


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
        ranks = w.cases.derived(_ranks)
        self.rank, self.size = ranks.steps - ranks.rank, ranks.steps
        self.weight, self.label = w.weight, w.cases.label
        self.entered = 0
        self.now = np.zeros((3, self.size))
        self.now[1] = 1e-300  # so that 0 / 0 is 0; lost in the first addition
        self.more = np.zeros((3, self.size))
        self.quotient, self.divisor = np.empty(self.size), np.empty(self.size)
        self.base = self.gain = self.mixed = np.empty((3, 0))

    def enter(self, last: int) -> None:
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


def coarse_auprc_area(w: Weighted) -> Floats:
    """(...,) mean average precision over `COARSE` evenly spaced counts that retain at least half of the images.

    For bootstrap replicates, where every count would take minutes; the area itself uses every count.
    """
    if w.weight.ndim == 1:
        single: Floats = coarse_auprc_area(Weighted(w.cases, w.weight[None]))[0]
        return single
    both = w.derived(_both_within_reach)
    if not both.any():
        return np.full(len(both), np.nan)
    first, last = _before_reach(w)[:, None], w.count[:, None] - 1
    place = first + np.arange(COARSE) * ((last - first) / (COARSE - 1))
    place[:, -1] = last[:, 0]
    chosen = np.rint(place).astype(np.intp)
    precision = _coarse_precision(w, w.locate((chosen + 1) * w.step[:, None]))
    new = np.diff(chosen, axis=1, prepend=-1) > 0  # a short curve has fewer counts than are asked for
    mean = np.where(new, precision, 0.0).sum(axis=1) / new.sum(axis=1)
    return np.where(both, mean, np.nan)


def _two_tails(cases: Cases) -> tuple[Index, Index] | None:
    """None unless images enter from both ends of the probability scale inwards, those of equal probability together.

    Shapes: (B+1,) how many of the distinct probabilities, from the highest, the blocks before hold, and from which one on they
    hold all.
    """
    ranking, blocks = cases.by_prob, len(cases.ends)
    block = cases.block[ranking.order]
    starts = np.append(0, ranking.ends[:-1] + 1)
    mixed = (np.minimum.reduceat(block, starts) < np.maximum.reduceat(block, starts)).any()
    if mixed or not cases.derived(Pairs).tails:
        return None
    low = ranking.values < cases.prob[-1]
    held = [np.cumsum(np.bincount(block[starts[part]], minlength=blocks)) for part in (~low, low)]
    return np.append(0, held[0]), len(starts) - np.append(0, held[1])


def _precision_of_tails(w: Weighted, at: Points, tails: tuple[Index, Index]) -> Floats:
    """`_coarse_precision` of two tails: at an image of the upper one the precision is the same at all points, and at an image of
    the lower one it lacks the masses between them.
    """
    positives, steps = at.retained(w.positive_mass), w.cases.positive_steps
    excluded = w.positives[:, None] - positives, w.total[:, None] - at.retained(w.mass)
    gained = np.empty_like(positives)
    for row, (hit, false) in enumerate(zip(*w.ranked, strict=True)):
        called = hit + false
        here, *masses = hit[steps + 1] - hit[steps], hit[steps + 1], called[steps + 1]
        alone = np.append(0.0, np.cumsum(here * precision(*masses)))
        # The edges of both tails before and after the block of each point, among all distinct probabilities and those of positives.
        edges = np.stack([tail[at.block[row] + k] for tail in tails for k in (0, 1)])
        places = np.searchsorted(steps, edges)
        within: list[int] = []  # the positive images of the blocks of all points
        for point, (upper, then, lower, first) in enumerate(places.T.tolist()):
            share = precision(*(mass[lower:] - out[row, point] for mass, out in zip(masses, excluded, strict=True)))
            gained[row, point] = alone[upper] + np.einsum("p,p->", here[lower:], share)
            within += range(upper, then)
            within += range(first, lower)
        if within:  # those of the upper tail, and below all of it those of the lower one
            upper, then, lower, first = places
            of, part, sums = np.repeat(np.arange(len(upper)), then - upper + lower - first), np.array(within), []
            fraction = at.fraction[row, of]
            for ranked, mass in zip((hit, called), masses, strict=True):
                inner, end, _, start = ranked[edges[:, of]]
                sums.append(inner + fraction * (mass[part] - inner + np.where(part < then[of], 0.0, end - start)))
            gained[row] += np.bincount(of, fraction * here[part] * precision(*sums), len(upper))
    return ratio(gained, positives)


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
    steps = -cases.by_prob.values[cases.positive_steps]
    return _Ranks(len(steps), np.searchsorted(steps, -cases.prob), np.flatnonzero(cases.label), cases.edges)


def _coarse_precision(w: Weighted, at: Points) -> Floats:
    """(R, M) average precision of the retained at M ascending points of every row, NaN where no positive image is retained."""
    ranks = w.cases.derived(_ranks)
    block, fraction = at.block, at.fraction
    rows, number = block.shape
    if ranks.steps > MANY_STEPS:
        tails = w.cases.derived(_two_tails)
        if tails is not None:
            return _precision_of_tails(w, at, tails)
        if rows > 1:
            single = zip(w.weight[:, None], block[:, None], fraction[:, None], strict=True)
            return np.concatenate(
                [_coarse_precision(Weighted(w.cases, row), Points(b, f, at.blocks)) for row, b, f in single]
            )
        ranks = ranks.held(w.weight[0])
    # An image enters whole at the first point that retains its whole block. Before, at points that retain a part of
    # the block, its part enters and leaves again.
    whole = block + (fraction == 1)
    entry = _entries(ranks.start[whole], len(w.cases))
    at_point, partial, part = _parts(w.weight, at, ranks.start)
    size = number + 1, ranks.steps + 1
    row = np.arange(rows)[:, None]

    def masses(images: Index | slice, kept: Bools | slice) -> Floats:
        """(R, M, G) mass that has entered at each of the G probabilities."""
        bins = (row * size[0] + entry[:, images]) * size[1] + ranks.rank[images]
        mass = w.weight[:, images].ravel()
        found = np.asarray(np.bincount(bins.ravel(), mass, minlength=rows * size[0] * size[1]), np.float64)
        if len(partial):
            bins = at_point[kept] * size[1] + ranks.rank[partial[kept]]
            np.add.at(found, bins, part[kept])
            np.subtract.at(found, bins + size[1], part[kept])
        entered = found.reshape(rows, *size)[:, :number, : ranks.steps]
        for point in range(1, number):
            entered[:, point] += entered[:, point - 1]
        return entered

    here = masses(ranks.positive, w.cases.label[partial])
    above, called = np.cumsum(here, axis=2), np.cumsum(masses(slice(None), slice(None)), axis=2)
    precision = np.divide(above, called, out=called, where=called > 0)
    return ratio(np.einsum("rmg,rmg->rm", here, precision), above[:, :, -1])


def _entries(starts: Index, images: int) -> Index:
    """(R, N) number of the first point at which each image has entered; at point m all images before starts (R, M) have."""
    rows = len(starts)
    marks = np.bincount((starts + np.arange(rows)[:, None] * (images + 1)).ravel(), minlength=rows * (images + 1))
    return np.asarray(np.cumsum(marks.reshape(rows, images + 1)[:, :images], axis=1))


def _parts(weight: Floats, at: Points, start: Index) -> tuple[Index, Index, Floats]:
    """Return the images that are retained in part at a point: number of the point (row x (M + 1) + point), image, mass retained."""
    row, point = np.nonzero(at.fraction < 1)
    block = at.block[row, point]
    first = start[block]
    size = start[block + 1] - first
    of = np.repeat(np.arange(len(row)), size)
    image = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size) + first[of]
    mass = weight[row[of], image] * at.fraction[row, point][of]
    return row[of] * (at.block.shape[1] + 1) + point[of], image, mass
