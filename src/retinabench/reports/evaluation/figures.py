"""The figures of the report: functions from plain arrays to a matplotlib figure, one small panel each.

Panels are drawn near the width of a phone and set side by side by the page, so that their text stays readable.
They hold no names of methods: the legend of the page does, and the order and marks are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from retinabench.reports.toolkit.figures import canvas
from retinabench.reports.toolkit.style import BAD, FAINT, GOOD, INK, MUTED, PASS, Mark

Floats = NDArray[np.float64]
WIDTH, HEIGHT = 380, 300
MOST_POINTS = 200
NHS = (0.20, 0.85)
"""False-positive rate and sensitivity of the NHS screening standard: specificity 80 %, sensitivity 85 %."""


@dataclass(frozen=True)
class Line:
    """A curve with an optional band: `x`, `y`, `low`, `high` of shape (P,), NaN where undefined."""

    mark: Mark
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None


@dataclass(frozen=True)
class Control:
    """A grey reference curve, labelled at the right edge of the panel."""

    label: str
    x: Floats
    y: Floats


def thin(*arrays: Floats | None, most: int = MOST_POINTS) -> list[Floats | None]:
    """Keep at most `most` evenly spaced points of arrays (P,), the first and the last among them."""
    count = next(len(a) for a in arrays if a is not None)
    keep = np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))
    return [None if a is None else np.asarray(a, float)[keep] for a in arrays]


def referral_panel(
    lines: Sequence[Line], controls: Sequence[Control], *, label: str, limits: tuple[float, float]
) -> Figure:
    """Draw a score of the retained pictures against the share that is referred to the expert."""
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    _draw_controls(axes, controls, limits)
    _draw_lines(axes, lines)
    axes.set(xlim=(0, 1), ylim=limits, xlabel="referred to the expert", ylabel=label)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure


def roc_panel(lines: Sequence[Line]) -> Figure:
    """Draw ROC curves with the region that meets the NHS standard and its corner point."""
    figure, [[axes]] = canvas(WIDTH, WIDTH)
    fpr, tpr = NHS
    axes.fill_between([0, fpr], tpr, 1, color=PASS, alpha=0.13, linewidth=0)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)))
    _draw_lines(axes, lines)
    axes.plot([fpr], [tpr], marker="o", markersize=6, color=PASS, linestyle="none", zorder=5)
    axes.annotate(
        "NHS standard:\nsensitivity 85 %,\nspecificity 80 %",
        NHS,
        (0.33, 0.56),
        fontsize=11,
        color=PASS,
        va="center",
        arrowprops={"arrowstyle": "-", "color": PASS, "linewidth": 0.7, "shrinkB": 4},
    )
    axes.set(xlim=(0, 1), ylim=(0, 1.005), xlabel="1 − specificity", ylabel="sensitivity", aspect="equal")
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.set_yticks(np.linspace(0, 1, 6))
    return figure


@dataclass(frozen=True)
class Spread:
    """What one column of the histogram shows: (N,) uncertainty, correct and, where known, grade."""

    heading: str
    uncertainty: Floats
    correct: NDArray[np.bool_]
    grade: NDArray[np.int8] | None


def histogram_panel(spreads: Sequence[Spread], *, reach: tuple[float, float], label: str) -> Figure:
    """Draw uncertainty by grade (rows) and set (columns), correct above the axis, incorrect below it.

    Each half is scaled to its own tallest bar, for the question is *where* the errors sit; the number of pictures
    stands in the corner.
    """
    graded = any(spread.grade is not None for spread in spreads)
    rows = [0, 1, 2, 3, 4] if graded else [None]
    figure, grid = canvas(
        WIDTH, 56 + (80 if graded else 170) * len(rows), len(rows), len(spreads), sharex=True
    )
    edges = np.linspace(*reach, 25)
    for column, spread in enumerate(spreads):
        for row, grade in enumerate(rows):
            axes = grid[row][column]
            chosen = np.ones(len(spread.correct), bool)
            if grade is not None:
                known = spread.grade if spread.grade is not None else np.full(len(chosen), -1)
                chosen = known == grade
            _draw_histogram(axes, spread.uncertainty[chosen], spread.correct[chosen], edges)
            if grade is not None and column == 0:
                axes.set_ylabel(f"grade {grade}", rotation=0, ha="right", va="center", fontsize=10)
        grid[0][column].set_title(spread.heading, fontsize=11, color=INK, loc="left")
        grid[-1][column].set_xlabel(label, fontsize=10)
        for axes in (line[column] for line in grid[:-1]):
            axes.tick_params(bottom=False)
    return figure


def reliability_panel(
    points: Sequence[tuple[str, Floats, Floats, Floats, Floats]], counts: Sequence[Floats]
) -> Figure:
    """Draw observed against predicted share of referable pictures.

    points: per set its colour and (B,) mean predicted P(referable), observed share, low and high end of its interval.
    counts: per set (20,) number of pictures by predicted P(referable), drawn along the bottom as shares.
    """
    figure, [[axes]] = canvas(WIDTH, WIDTH)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)))
    edges = np.linspace(0, 1, 21)
    for (color, x, y, low, high), count in zip(points, counts, strict=True):
        share = count / max(count.sum(), 1)
        axes.stairs(0.25 * share, edges, color=color, fill=True, alpha=0.25, linewidth=0)
        axes.errorbar(
            x, y, yerr=np.abs(np.stack([y - low, high - y])), color=color, linewidth=1.3,
            elinewidth=0.9, marker="o" if color == GOOD else "s", markersize=4, capsize=0,
        )  # fmt: skip
    axes.set(
        xlim=(0, 1), ylim=(0, 1.005), xlabel="predicted P(referable)", ylabel="observed share referable",
        aspect="equal",
    )  # fmt: skip
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.set_yticks(np.linspace(0, 1, 6))
    return figure


def _draw_lines(axes: Axes, lines: Sequence[Line]) -> None:
    for line in lines:
        x, y, low, high = thin(line.x, line.y, line.low, line.high)
        assert x is not None
        if low is not None and high is not None:
            axes.fill_between(x, low, high, color=line.mark.color, alpha=0.11, linewidth=0)
    for line in lines:
        x, y, *_ = thin(line.x, line.y)
        assert x is not None
        assert y is not None
        axes.plot(x, y, color=line.mark.color, linestyle=line.mark.linestyle, zorder=3)


def _draw_controls(axes: Axes, controls: Sequence[Control], limits: tuple[float, float]) -> None:
    """Draw the controls; their labels stand outside at the height of their ends, at least a line apart."""
    ends = []
    for control in controls:
        x, y, *_ = thin(control.x, control.y)
        assert x is not None
        assert y is not None
        axes.plot(x, y, color=MUTED, linewidth=1.0, linestyle=(0, (1, 2)), zorder=2)
        if (known := y[np.isfinite(y)]).size:
            share = (known[-1] - limits[0]) / (limits[1] - limits[0])
            ends.append((float(np.clip(share, 0.02, 0.98)), control.label))
    lowest = -1.0
    for share, label in sorted(ends):
        lowest = max(share, lowest + 0.065)
        axes.text(1.015, lowest, label, transform=axes.transAxes, fontsize=10, color=MUTED, va="center")


def _draw_histogram(axes: Axes, values: Floats, correct: NDArray[np.bool_], edges: Floats) -> None:
    right, _ = np.histogram(values[correct], edges)
    wrong, _ = np.histogram(values[~correct], edges)
    axes.stairs(right / max(right.max(), 1), edges, color=GOOD, fill=True, alpha=0.8, linewidth=0)
    axes.stairs(-wrong / max(wrong.max(), 1), edges, color=BAD, fill=True, alpha=0.9, linewidth=0)
    axes.axhline(0, color=MUTED, linewidth=0.6)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(-1.25, 1.25), yticks=[])
    axes.xaxis.set_major_locator(MaxNLocator(3))
    axes.spines["left"].set_visible(False)
    axes.spines["bottom"].set_visible(False)
    for height, count, color in ((0.35, right.sum(), GOOD), (-0.35, wrong.sum(), BAD)):
        place = axes.get_yaxis_transform()
        axes.text(1.02, height, f"{int(count)}", transform=place, fontsize=9, color=color, va="center")
