"""One panel of curves: ROC with the NHS point, or a metric of what is kept over the share referred."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from retinabench.reports.evaluation.figures import NHS
from retinabench.reports.papers import drawing
from retinabench.reports.papers.collect import Collection, Group
from retinabench.reports.papers.curves import GRID, RATES
from retinabench.reports.papers.drawing import averaged, line
from retinabench.reports.toolkit.style import MUTED, PASS, Mark

Floats = NDArray[np.float64]
LABELS = {
    "accuracy": "accuracy of the kept",
    "auroc": "AUROC of the kept",
    "nll": "NLL of the kept (nats)",
    "auprc": "AUPRC of the kept",
}


def referral_there(groups: Sequence[Group], name: str, metric: str) -> bool:
    """Whether some method has a curve to draw."""
    return any(
        np.isfinite(run.curves.referral.get((name, metric), np.array(np.nan))).any()
        for group in groups
        for run in group.runs
    )


def roc_there(groups: Sequence[Group], name: str) -> bool:
    """Whether some method has an ROC curve on a set."""
    return any((name, 1.0) in run.curves.roc for group in groups for run in group.runs)


def roc_panel(
    axes: Axes,
    groups: Sequence[Group],
    looks: Sequence[Mark],
    name: str,
    collection: Collection,
    share: float = 1.0,
) -> None:
    """Draw averaged ROC curves with the NHS point; share: what is retained of the images."""
    x = RATES[collection.rules]
    for group, mark in zip(groups, looks, strict=True):
        values = [run.curves.roc[name, share] for run in group.runs if (name, share) in run.curves.roc]
        if values:
            line(axes, mark, x, values)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)), zorder=1)
    nhs_point(axes)
    axes.set(xlim=(-0.03, 0.93), ylim=(0.45, 1.02), xlabel="1 − specificity", ylabel="sensitivity")
    drawing.small(axes)


def nhs_point(axes: Axes) -> None:
    """Mark sensitivity 85 % at specificity 80 %, and all that is better."""
    axes.fill_between([0, NHS[0]], NHS[1], 1, color=PASS, alpha=0.13, linewidth=0)
    axes.plot(*[[value] for value in NHS], marker="o", markersize=5, color=PASS, linestyle="none", zorder=5)
    drawing.halo(
        axes.annotate(
            "NHS", NHS, (5, -4), textcoords="offset points", fontsize=8, color=PASS, va="top", zorder=6
        )
    )


def referral_panel(
    axes: Axes, groups: Sequence[Group], looks: Sequence[Mark], metric: str, name: str, collection: Collection
) -> None:
    """Draw a metric of the kept images of a set, every method's, and what random and perfect referral would do."""
    best: tuple[float, Group | None] = (-np.inf, None)
    for group, mark in zip(groups, looks, strict=True):
        mean = referral_line(axes, group, mark, metric, name, collection)
        worth = float(np.nanmean(mean)) if mean is not None and np.isfinite(mean).any() else -np.inf
        best = max(best, ((-worth if metric == "nll" else worth), group), key=lambda pair: pair[0])
    drawing.referral_axes(axes, LABELS[metric])
    axes.set_ylim(*limits_of(groups, metric, name))
    if best[1] is not None:
        _controls(axes, best[1], metric, name)


def referral_line(
    axes: Axes, group: Group, mark: Mark, metric: str, name: str, collection: Collection
) -> Floats | None:
    """Draw one method's line; return its mean (101,) over runs, None where it has no such curve."""
    values = [found for run in group.runs if (found := run.curves.referral.get((name, metric))) is not None]
    if not values:
        return None
    return line(axes, mark, GRID, values, ddof=0 if collection.rules == "published" else 1)


def _controls(axes: Axes, group: Group, metric: str, name: str) -> None:
    start, _ = averaged([run.curves.referral[name, metric][:1] for run in group.runs], 1)
    drawing.control(axes, GRID, np.full(len(GRID), start[0]), "random")
    oracles = [run.curves.oracle[name, metric] for run in group.runs if (name, metric) in run.curves.oracle]
    if oracles:
        drawing.control(axes, GRID, averaged(oracles, 1)[0], "oracle")


def limits_of(groups: Sequence[Group], metric: str, name: str) -> tuple[float, float]:
    """A range that holds every line up to four fifths referred; bands and what is left of few images may leave it."""
    seen = [
        averaged([run.curves.referral[name, metric] for run in group.runs], 1)[0][: int(0.8 * len(GRID))]
        for group in groups
        if (name, metric) in group.runs[0].curves.referral
    ]
    values = np.concatenate(seen)
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 1.0
    if metric == "nll":
        return 0.0, float(values.max()) * 1.15
    low = float(values.min())
    return max(0.0, low - 0.12 * (1 - low) - 0.01), 1.0 + 0.03 * (1 - low) + 0.002
