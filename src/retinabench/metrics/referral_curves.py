"""What remains when the uncertain images go to an expert: curves over every number of referred images, and their areas.

Images are referred in the order of their uncertainty, the largest first. With n images the curve has a value for
0, 1, … n-1 referred. Ties in uncertainty are shared evenly (see `weighted_images`), so that no value depends on the order
of the rows.

The area of a mean is a weighted sum over images, and that of AUROC without ties one over the images within reach: neither
needs the curve. Average precision takes N x N_positive operations (`average_precision`): beyond `WORK` only `GRID` counts are
exact, evenly spaced, and the others are interpolated linearly. Bootstrap replicates evaluate `COARSE` counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import BLUE, Row, Tabular, axes_or_new
from retinabench.metrics.average_precision import PositiveRanks, average_precision_at, precision_at_few
from retinabench.metrics.ordered_pairs import Pairs
from retinabench.metrics.weighted_images import SLACK, Bools, Cases, Floats, Index, Weighted, harmonic, ratio

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

    def at(self, referred: float) -> float:
        """Value where at least this fraction is referred: the nearest count that does not retain more."""
        later = np.flatnonzero(self.referred >= referred - 1e-9)
        return float(self.value[later[0]]) if len(later) else np.nan

    def records(self) -> list[Row]:
        """Return one dictionary per fraction referred."""
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
    """`referral_curve` of one weighting."""
    value = w.derived(METRICS[metric])
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
    closed = metric == "auroc" and len(w.cases.ends) == len(w.cases) and w.whole_rows.any()
    if w.weight.ndim > 1 and (metric == "auprc" or (closed and not w.whole)):
        return np.array([area_of(Weighted(w.cases, row), metric) for row in w.weight])
    if metric in MEANS:
        return np.asarray(np.einsum("...n,n->...", w.mean_factor, MEANS[metric](w.cases)) / w.total)[()]
    if closed:
        return np.where(w.derived(_both_within_reach), _area_of_ranks(w), np.nan)[()]
    value = w.derived(METRICS[metric])
    if not ranks_classes(metric):
        return _mean(value, np.isfinite(value) & w.there)
    return np.where(w.derived(_both_within_reach), _mean(value, _within_reach(w)), np.nan)[()]


def value_at(w: Weighted, metric: str, referred: float) -> Floats:
    """Return the value (...,) of the curve where at least this fraction is referred, NaN where undefined.

    References:
        Band et al., Benchmarking Bayesian deep learning on diabetic retinopathy detection tasks, NeurIPS (2021).
    """
    value, retained = w.derived(METRICS[metric]), w.count - np.ceil(w.count * (referred - 1e-9)).astype(np.intp)
    last = np.take_along_axis(value, np.maximum(retained, 1)[..., None] - 1, axis=-1)[..., 0]
    return np.where(retained > 0, last, np.nan)[()]


def ranks_classes(metric: str) -> bool:
    """Whether the metric compares the two classes and needs enough of both."""
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
        value = w.derived(METRICS[name])
        defined = enough_of_both(w) if ranks_classes(name) else np.ones_like(value, bool)
        value = np.where(defined & (w.points >= least), value, np.nan)
        before, after = (np.take_along_axis(value, side - 1, axis=-1) for side in (number, following))
        with np.errstate(invalid="ignore", divide="ignore"):
            between = (after - before) / (high - low) * (asked - low) + before
        found[name] = np.where(asked < low, np.nan, np.where(on_it, before, between))
    return found


def enough_of_both(w: Weighted) -> Bools:
    """(..., K) whether at least `MIN_CLASS` images of each class are retained."""
    return np.asarray(np.minimum(w.retained_positives, w.retained_negatives) >= MIN_CLASS - 1e-9)


def _within_reach(w: Weighted) -> Bools:
    """(..., K) whether a count enters the areas of AUROC and AUPRC."""
    return np.asarray((np.arange(w.there.shape[-1]) >= _before_reach(w)[..., None]) & w.there)


def _before_reach(w: Weighted) -> Index:
    """(...,) number of the counts that retain too few images to enter the areas of AUROC and AUPRC."""
    return np.asarray(np.ceil((1 - REACH) * (1 - SLACK) * w.total / w.step).astype(np.intp) - 1)


def _both_within_reach(w: Weighted) -> Bools:
    """(...,) whether both classes are retained at every count that enters the areas of AUROC and AUPRC."""
    last = w.locate(np.asarray((_before_reach(w) + 1) * w.step)[..., None])
    positives = last.retained(w.positive_mass)
    return np.asarray(np.minimum(positives, last.retained(w.mass) - positives)[..., 0] > 0)


def _area_of_ranks(w: Weighted) -> Floats:
    """(...,) mean AUROC over the counts within reach, for whole weights and without ties in uncertainty.

    Where a positive image enters, its share of the pairs is slope + rest / x at the positive mass x, over the negative mass, which
    stays: the sum over its counts is a difference of harmonic numbers. Of a negative image the classes are exchanged.
    """
    before = _before_reach(w)[..., None]
    places = w.locate(before + 1.0).block.ravel()
    first = int(places.min())
    pairs = _ordered_pairs(w)[..., first:]
    mass, positive = w.mass[..., first:], w.positive_mass[..., first:-1]
    other = np.where(w.cases.label[first:], mass[..., :-1] - positive, positive)
    slope = np.diff(pairs) / np.maximum(np.diff(mass), 1)
    rest = pairs[..., :-1] - slope * (mass[..., :-1] - other)
    retained, sums = np.maximum(mass, before), harmonic(int(np.max(w.count)))
    inverse = np.take(sums, (retained[..., 1:] - other).astype(np.intp))
    inverse -= np.take(sums, (retained[..., :-1] - other).astype(np.intp))
    share = (slope * np.diff(retained) + rest * inverse) / np.maximum(other, 1)
    # Each row from its own first place, so that its sum is the same beside any others.
    rows = np.arange(len(places)) * share.shape[-1]
    area = np.add.reduceat(share.ravel(), np.stack([rows, rows + places - first], axis=1).ravel())[1::2]
    return np.asarray(area.reshape(w.count.shape) / (w.count - before[..., 0]))


def _ordered_pairs(w: Weighted) -> Floats:
    """(..., N+1) `Pairs.cumulate` of whole weights without ties in uncertainty; of two tails without ties by three sums of integers."""
    index, label = w.cases.index(Pairs), w.cases.label
    if not index.tails or index.ties:
        return index.cumulate(w.weight, whole=True)[0]
    lower = w.cases.prob < w.cases.prob[-1]
    below, above = (np.cumsum(w.numbers * met, axis=-1, dtype=np.int32) for met in (lower & ~label, label & ~lower))
    pairs = np.zeros(w.mass.shape)
    pairs[..., 1:] = np.cumsum(np.multiply(np.where(label, below, above), w.numbers, dtype=np.int64), axis=-1)
    return pairs


def _mean(value: Floats, enters: Bools) -> Floats:
    """(...,) mean of the values (..., K) that enter, NaN where none does."""
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


# ---------------------------------------------------------------------------- values at every count, (..., K)


def _mean_of(w: Weighted, values: Floats) -> Floats:
    return np.asarray(w.along(w.block_sums(w.weight * values)) / w.points)


def _accuracy(w: Weighted) -> Floats:
    return np.asarray((w.points - w.along(w.wrong_mass)) / w.points)


def _sensitivity(w: Weighted) -> Floats:
    return ratio(w.along(w.block_sums(w.positive * w.cases.called)), w.retained_positives)


def _specificity(w: Weighted) -> Floats:
    return ratio(w.along(w.block_sums(w.negative * ~w.cases.called)), w.retained_negatives)


def _auroc(w: Weighted) -> Floats:
    """Pairs: those of the blocks entered, then of the block at the threshold with its fraction f.

    Pairs between it and the blocks before grow as f, pairs inside it as f^2.
    """
    total, inside = w.cases.index(Pairs).cumulate(w.weight, whole=w.whole)
    before, gained = w.at_points.split(total)
    fraction = w.at_points.fraction
    if inside is None:  # no ties: a block is one image
        ordered = before + fraction * gained
    else:
        own = np.take_along_axis(inside, w.at_points.block, axis=-1)
        ordered = before + fraction * (gained - own + fraction * own)
    return ratio(ordered, w.retained_positives * w.retained_negatives)


MEANS: dict[str, Callable[[Cases], NDArray[Any]]] = {
    "accuracy": lambda cases: (~cases.error).astype(np.float64),
    "nll": lambda cases: cases.log_loss,
    "brier": lambda cases: cases.squared_error,
}
"""The value (N,) of which the metric is the mean."""

METRICS: dict[str, Callable[[Weighted], Floats]] = {
    "accuracy": _accuracy,
    "nll": lambda w: _mean_of(w, w.cases.log_loss),
    "auroc": _auroc,
    "auprc": lambda w: w.derived(auprc_values)[0],
    "sensitivity": _sensitivity,
    "specificity": _specificity,
    "prevalence": lambda w: np.asarray(w.retained_positives / w.points),
    "brier": lambda w: _mean_of(w, w.cases.squared_error),
}


def auprc_values(w: Weighted) -> tuple[Floats, Bools | None]:
    """Average precision of one weighting at every point (K,), NaN without positives; and which points are exact, None for all."""
    count = len(w.points)
    if count * float(w.cases.index(PositiveRanks).count) <= WORK:
        return average_precision_at(w, w.at_points), None
    chosen = np.unique(np.linspace(0, count - 1, GRID).round().astype(np.intp))
    known = average_precision_at(w, w.at_points.chosen(chosen))
    exact = np.zeros(count, bool)
    exact[chosen] = True
    return np.interp(np.arange(count), chosen, known), exact


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
    precision = precision_at_few(w, w.locate((chosen + 1) * w.step[:, None]))
    new = np.diff(chosen, axis=1, prepend=-1) > 0  # a short curve has fewer counts than are asked for
    mean = np.where(new, precision, 0.0).sum(axis=1) / new.sum(axis=1)
    return np.where(both, mean, np.nan)
