"""What remains when the uncertain images go to an expert: curves over every number of referred images.

Images are referred in the order of their uncertainty, the largest first. With n images the curve has a value for
0, 1, … n-1 referred. Ties in uncertainty are shared evenly (see `cases`), so that no value depends on the order of the
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import BLUE, Row, Tabular, axes_or_new
from retinabench.metrics.selective import incremental_precision
from retinabench.metrics.selective.incremental_auroc import Pairs
from retinabench.metrics.sorted_images import Weighted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]

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

    Args:
        w: The weighted images.
        metric: One of `METRICS`.
        referred: At least this fraction is referred; see `Curve.at`.

    Returns:
        The value, NaN where undefined.

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
    "auprc": incremental_precision.curve,
    "sensitivity": _always(_sensitivity),
    "specificity": _always(_specificity),
    "prevalence": _always(_prevalence),
    "brier": _always(_brier),
}
