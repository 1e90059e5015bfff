"""Panels of the papers' figures: methods as lines with bands over runs, ROC and referral curves, and shared parts.

A line is the mean over runs, its band one standard error on either side. Figures are `PaperFigure`s: they are drawn when
they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from retinabench.metrics.clinical.operating_points import GOALS
from retinabench.reports.papers.collection import Collection, MethodRuns, TaskResults
from retinabench.reports.papers.curves import GRID, RATES
from retinabench.reports.toolkit.figures import canvas
from retinabench.reports.toolkit.style import FAINT, HUES, MUTED, PASS, Mark

Floats = NDArray[np.float64]
PANEL = (6 * 72 * 0.62, 4 * 72 * 0.62)  # a panel: the 6 x 4 inches of the released plots, scaled; in points
METRIC_LABELS = {
    "accuracy": "accuracy of the retained",
    "auroc": "AUROC of the retained",
    "nll": "NLL of the retained (nats)",
    "auprc": "AUPRC of the retained",
}


BANDS = "Lines: means over runs; bands: ± one standard error over runs (none for a single run). "


@dataclass(frozen=True)
class PaperFigure:
    """A figure of a paper.

    Attributes:
        name: Name of its files.
        number: Its number in the paper, "" if it has none.
        title: What it shows, with task and criterion.
        caption: How it is read.
        draw: Draws it.
    """

    name: str
    number: str
    title: str
    caption: str
    draw: Callable[[], Figure]


def file_name(kind: str, number: str, results: TaskResults) -> str:
    """Return the name of a figure's files, such as `figure-05-results-country-shift`.

    Args:
        kind: What the figure shows, as a slug.
        number: Its number in the paper, "" if it has none.
        results: Its task and criterion.
    """
    lead = f"figure-{int(number):02d}" if number else "figure"
    return "-".join(part for part in (lead, kind, results.slug) if part)


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

    Args:
        axes: Where to draw.
        mark: Colour and line pattern.
        x: (P,) abscissa.
        values: (P,) ordinates of each run.
        ddof: Of the standard deviation over runs.
        **style: Further arguments of `Axes.plot`.

    Returns:
        The mean (P,).
    """
    mean, error = mean_and_error(values, ddof)
    if error is not None:
        axes.fill_between(x, mean - error, mean + error, color=mark.color, alpha=0.15, linewidth=0)
    axes.plot(x, mean, color=mark.color, linestyle=mark.linestyle, linewidth=1.4, zorder=3, **style)
    return mean


def method_legend(figure: Figure, names: Sequence[str], marks: Sequence[Mark]) -> None:
    """Draw one legend below all panels, in as many columns as fit; the figure grows by the legend's height.

    Args:
        figure: The figure.
        names: Names of the methods.
        marks: Their colours and line patterns.
    """
    longest = max(map(len, names))
    width = figure.get_size_inches()[0] * 72
    columns = max(1, min(len(names), int(width / (5.2 * longest + 45))))
    figure.set_figheight(figure.get_figheight() + 13 / 72 * (-(-len(names) // columns) - 2))
    handles = [
        Line2D([], [], color=m.color, linestyle=(0, m.dashes) if m.dashes else "-", linewidth=1.8)
        for m in marks
    ]
    figure.legend(
        handles, [_plain(name) for name in names], loc="outside lower center", ncols=columns, frameon=False,
        fontsize=8.5, handlelength=3.2,
    )  # fmt: skip


def _plain(name: str) -> str:
    """Escape a name that matplotlib would otherwise read as mathematics."""
    return name.replace("$", r"\$")


def panel_title(axes: Axes, letter: str, text: str) -> None:
    """Write `(a) In-domain` above a panel.

    Args:
        axes: The panel.
        letter: Its letter, "" for none.
        text: Its title.
    """
    axes.set_title(f"({letter}) {text}" if letter else text, fontsize=9.5, loc="left")


def referral_axes(axes: Axes, label: str) -> None:
    """Label the axes: share referred over a score of the retained images."""
    axes.set(xlim=(0, 1), xlabel="referred to the expert", ylabel=label)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    style_axes(axes)


def style_axes(axes: Axes) -> None:
    """Set the font sizes of a figure of several panels, and a faint grid."""
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(9)
    axes.yaxis.label.set_fontsize(9)
    axes.grid(color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)


def control_line(axes: Axes, x: Floats, y: Floats, name: str) -> None:
    """Draw a grey reference curve with its name right of the panel.

    Args:
        axes: The panel, whose limits must have been set.
        x: (n,) abscissae.
        y: (n,) ordinates; NaN is left out.
        name: Its name.
    """
    known = y[np.isfinite(y)]
    if not known.size:
        return
    axes.plot(x, y, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)), zorder=2)
    low, high = axes.get_ylim()
    # The names of two curves that end at the same height do not overlap.
    height = float(np.clip((known[-1] - low) / (high - low), 0.02, 0.9 if name == "random" else 0.98))
    axes.text(1.01, height, name, transform=axes.transAxes, fontsize=7.5, color=MUTED, va="center")


def panel_grid(rows: int, columns: int) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure of panels and its axes, with room for the legend below."""
    figure, grid = canvas(PANEL[0] * columns + 10, PANEL[1] * rows + 46, rows, columns, text=11)
    figure.get_layout_engine().set(w_pad=0.05, h_pad=0.06)  # type: ignore[union-attr, call-arg]
    return figure, grid


def outline(text: Text) -> None:
    """Outline a text in white, so that it is legible on lines."""
    text.set_path_effects([withStroke(linewidth=2.2, foreground="white")])


def has_referral_curve(methods: Sequence[MethodRuns], name: str, metric: str) -> bool:
    """Return whether some method has a referral curve of a metric on a set.

    Args:
        methods: The methods.
        name: The set.
        metric: The metric.
    """
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
    """Draw averaged ROC curves with the NHS point.

    Args:
        axes: Where to draw.
        methods: The methods.
        marks: Their colours and line patterns.
        name: The set.
        collection: Its rules choose the grid.
        share: Share of the images that is retained.
    """
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
    """Draw a metric of the retained images of a set for all methods, with random and oracle referral of the best one.

    Args:
        axes: The panel.
        methods: The methods.
        marks: Their colours and line patterns.
        metric: The metric.
        name: The set.
        collection: Its rules choose the standard error.
    """
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
    """Draw one method's referral curve; return its mean (101,) over runs, None where it has none.

    Args:
        axes: The panel.
        method: The method.
        mark: Its colour and line pattern.
        metric: The metric.
        name: The set.
        collection: Its rules choose the standard error.
    """
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
    """Return limits that include every line up to four fifths referred; bands and noisier ends may exceed them.

    Args:
        methods: The methods.
        metric: The metric.
        name: The set.
    """
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
