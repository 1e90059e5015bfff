"""Panels of the papers' figures: methods as lines with bands over runs, ROC and referral curves.

A line is the mean over runs, its band one standard error on either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from retinabench.metrics.clinical.operating_points import GOALS
from retinabench.reports.papers.curves import GRID, RATES
from retinabench.reports.papers.figures.parts import (
    control_line,
    outline,
    referral_axes,
    style_axes,
)
from retinabench.reports.papers.results import Collection, MethodRuns
from retinabench.reports.toolkit.style import HUES, MUTED, PASS, Mark

Floats = NDArray[np.float64]
METRIC_LABELS = {
    "accuracy": "accuracy of the retained",
    "auroc": "AUROC of the retained",
    "nll": "NLL of the retained (nats)",
    "auprc": "AUPRC of the retained",
}


BANDS = "Lines: means over runs; bands: ± one standard error over runs (none for a single run). "


def method_marks(methods: Sequence[MethodRuns]) -> list[Mark]:
    """Return one colour per method: single trainings solid, ensembles dotted (from the seventh: dash-dotted, dashed)."""
    bases = list(dict.fromkeys(method.base for method in methods))
    found = []
    for method in methods:
        k = bases.index(method.base)
        solid, pooled = ((0, 2), (3, 1))[k // len(HUES) % 2]
        found.append(Mark(k % len(HUES), pooled if method.ensemble else solid))
    return found


def mean_and_error(values: Sequence[Floats], ddof: int) -> tuple[Floats, Floats | None]:
    """Return the mean (P,) over runs and its standard error, None for a single run."""
    array = np.array(values)
    mean = array.mean(axis=0)
    return mean, array.std(axis=0, ddof=ddof) / np.sqrt(len(array)) if len(array) > 1 else None


def draw_runs(
    axes: Axes, mark: Mark, x: Floats, values: Sequence[Floats], ddof: int = 1, **style: Any
) -> Floats:
    """Draw the mean over runs with a band of one standard error.

    Shapes: `x` (P,), `values` (P,), returns (P,).
    """
    mean, error = mean_and_error(values, ddof)
    if error is not None:
        axes.fill_between(x, mean - error, mean + error, color=mark.color, alpha=0.15, linewidth=0)
    axes.plot(x, mean, color=mark.color, linestyle=mark.linestyle, linewidth=1.4, zorder=3, **style)
    return mean


def has_referral_curve(methods: Sequence[MethodRuns], name: str, metric: str) -> bool:
    """Return whether some method has a referral curve of a metric on a set."""
    return any(
        np.isfinite(run.curves.referral.get((name, metric), np.array(np.nan))).any()
        for method in methods
        for run in method.runs
    )


def has_roc_curve(methods: Sequence[MethodRuns], name: str) -> bool:
    """Tell whether some method has an ROC curve on a set."""
    return any((name, 1.0) in run.curves.roc for method in methods for run in method.runs)


def roc_panel(
    axes: Axes,
    methods: Sequence[MethodRuns],
    marks: Sequence[Mark],
    name: str,
    collection: Collection,
    share: float = 1.0,
) -> None:
    """Draw averaged ROC curves with the NHS point."""
    x = RATES[collection.rules]
    for method, mark in zip(methods, marks, strict=True):
        values = [run.curves.roc[name, share] for run in method.runs if (name, share) in run.curves.roc]
        if values:
            draw_runs(axes, mark, x, values)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)), zorder=1)
    nhs_point(axes)
    axes.set(xlim=(-0.03, 0.93), ylim=(0.45, 1.02), xlabel="1 − specificity", ylabel="sensitivity")
    style_axes(axes)


def nhs_point(axes: Axes) -> None:
    """Mark the NHS standard, sensitivity 85 % at specificity 80 %, and the region that meets it."""
    point = 1 - GOALS["nhs"].specificity, GOALS["nhs"].sensitivity
    axes.fill_between([0, point[0]], point[1], 1, color=PASS, alpha=0.13, linewidth=0)
    axes.plot(*[[value] for value in point], marker="o", markersize=5, color=PASS, linestyle="none", zorder=5)
    outline(
        axes.annotate(
            "NHS", point, (5, -4), textcoords="offset points", fontsize=8, color=PASS, va="top", zorder=6
        )
    )


def referral_panel(
    axes: Axes,
    methods: Sequence[MethodRuns],
    marks: Sequence[Mark],
    metric: str,
    name: str,
    collection: Collection,
) -> None:
    """Draw a metric of the retained images of a set for all methods, with random and oracle referral of the best one."""
    best: tuple[float, MethodRuns | None] = (-np.inf, None)
    for method, mark in zip(methods, marks, strict=True):
        mean = referral_line(axes, method, mark, metric, name, collection)
        worth = float(np.nanmean(mean)) if mean is not None and np.isfinite(mean).any() else -np.inf
        best = max(best, ((-worth if metric == "nll" else worth), method), key=lambda pair: pair[0])
    referral_axes(axes, METRIC_LABELS[metric])
    axes.set_ylim(*value_range(methods, metric, name))
    if best[1] is not None:
        _controls(axes, best[1], metric, name)


def referral_line(
    axes: Axes, method: MethodRuns, mark: Mark, metric: str, name: str, collection: Collection
) -> Floats | None:
    """Draw one method's referral curve; return its mean (101,) over runs, None where it has none."""
    values = [found for run in method.runs if (found := run.curves.referral.get((name, metric))) is not None]
    if not values:
        return None
    return draw_runs(axes, mark, GRID, values, ddof=0 if collection.rules == "published" else 1)


def _controls(axes: Axes, method: MethodRuns, metric: str, name: str) -> None:
    start, _ = mean_and_error([run.curves.referral[name, metric][:1] for run in method.runs], 1)
    control_line(axes, GRID, np.full(len(GRID), start[0]), "random")
    oracles = [run.curves.oracle[name, metric] for run in method.runs if (name, metric) in run.curves.oracle]
    if oracles:
        control_line(axes, GRID, mean_and_error(oracles, 1)[0], "oracle")


def value_range(methods: Sequence[MethodRuns], metric: str, name: str) -> tuple[float, float]:
    """Return limits that include every line up to four fifths referred; bands and noisier ends may exceed them."""
    seen = [
        mean_and_error([run.curves.referral[name, metric] for run in method.runs], 1)[0][
            : int(0.8 * len(GRID))
        ]
        for method in methods
        if (name, metric) in method.runs[0].curves.referral
    ]
    values = np.concatenate(seen)
    values = values[np.isfinite(values)]
    if not values.size:
        return 0.0, 1.0
    if metric == "nll":
        return 0.0, float(values.max()) * 1.15
    low = float(values.min())
    return max(0.0, low - 0.12 * (1 - low) - 0.01), 1.0 + 0.03 * (1 - low) + 0.002
