"""The figures of the evaluation page: functions from plain arrays to a matplotlib figure, one small panel each.

Panels hold no names of methods: the legend of the page does, and the order and marks are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from retinabench.metrics.clinical.operating_points import GOALS
from retinabench.reports.toolkit.figures import (
    TEXT,
    WIDTH,
    Floats,
    Line,
    canvas,
    draw_lines,
    light_grid,
    thin,
)
from retinabench.reports.toolkit.style import BAD, FAINT, GOOD, INK, MUTED, PASS

HEIGHT = 300
NHS = (round(1 - GOALS["nhs"].specificity, 10), GOALS["nhs"].sensitivity)
"""False-positive rate and sensitivity of the NHS screening standard: specificity 80 %, sensitivity 85 %."""


@dataclass(frozen=True)
class Control:
    """A grey reference curve, labelled at the right edge of the panel."""

    label: str
    x: Floats
    y: Floats


def referral_panel(
    lines: Sequence[Line],
    controls: Sequence[Control],
    *,
    label: str,
    limits: tuple[float, float],
    referred: float,
) -> Figure:
    """Draw a score of the retained images against the share that is referred to the expert."""
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    axes.axvline(referred, color=FAINT, linewidth=1.2, zorder=1)
    _draw_controls(axes, controls, limits)
    draw_lines(axes, lines)
    axes.set(xlim=(0, 1), ylim=limits, xlabel="referred to the expert", ylabel=label)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    light_grid(axes, "y")
    return figure


def roc_panel(lines: Sequence[Line]) -> Figure:
    """Draw ROC curves with the region that meets the NHS standard and its corner point, which the page's legend explains."""
    figure, [[axes]] = canvas(WIDTH, WIDTH)
    fpr, tpr = NHS
    axes.fill_between([0, fpr], tpr, 1, color=PASS, alpha=0.13, linewidth=0)
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)))
    draw_lines(axes, lines)
    axes.plot([fpr], [tpr], marker="o", markersize=6, color=PASS, linestyle="none", zorder=5)
    axes.set(xlim=(0, 1), ylim=(0, 1.005), xlabel="1 − specificity", ylabel="sensitivity", aspect="equal")
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.set_yticks(np.linspace(0, 1, 6))
    return figure


@dataclass(frozen=True)
class Uncertainties:
    """What one column of the histogram shows: (N,) uncertainty, correct and, where known, grade."""

    heading: str
    uncertainty: Floats
    correct: NDArray[np.bool_]
    grade: NDArray[np.int8] | None


def histogram_panel(columns: Sequence[Uncertainties], *, limits: tuple[float, float], label: str) -> Figure:
    """Draw uncertainty by grade (rows) and set (columns), correct above the axis, incorrect below it.

    Each half is scaled to its own tallest bar, because the figure compares positions; the number of images is printed beside it.
    """
    graded = any(column.grade is not None for column in columns)
    rows = [0, 1, 2, 3, 4] if graded else [None]
    height = 56 + (80 if graded else 170) * len(rows)
    figure, grid = canvas(WIDTH, height, len(rows), len(columns), sharex=True)
    edges = np.linspace(*limits, 25)
    for number, column in enumerate(columns):
        for row, grade in enumerate(rows):
            axes = grid[row][number]
            chosen = np.ones(len(column.correct), bool)
            if grade is not None:
                known = column.grade if column.grade is not None else np.full(len(chosen), -1)
                chosen = known == grade
            _draw_histogram(axes, column.uncertainty[chosen], column.correct[chosen], edges)
            if grade is not None and number == 0:
                axes.set_ylabel(f"grade {grade}", rotation=0, ha="right", va="center", fontsize=TEXT)
        grid[0][number].set_title(column.heading, fontsize=TEXT, color=INK, loc="left")
        grid[-1][number].set_xlabel(label, fontsize=TEXT)
        for axes in (line[number] for line in grid[:-1]):
            axes.tick_params(bottom=False)
    return figure


def reliability_panel(
    points: Sequence[tuple[str, Floats, Floats, Floats, Floats]], counts: Sequence[Floats]
) -> Figure:
    """Draw observed against predicted share of referable images.

    Shapes: `points` (B,).
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


def _draw_controls(axes: Axes, controls: Sequence[Control], limits: tuple[float, float]) -> None:
    """Draw the controls; their labels stand outside at the height of their ends, at least a line apart."""
    ends = []
    for control in controls:
        x, y = thin(control.x), thin(control.y)
        axes.plot(x, y, color=MUTED, linewidth=1.0, linestyle=(0, (1, 2)), zorder=2)
        if (known := y[np.isfinite(y)]).size:
            share = (known[-1] - limits[0]) / (limits[1] - limits[0])
            ends.append((float(np.clip(share, 0.02, 0.98)), control.label))
    lowest = -1.0
    for share, label in sorted(ends):
        lowest = max(share, lowest + 0.065)
        axes.text(1.015, lowest, label, transform=axes.transAxes, fontsize=TEXT, color=MUTED, va="center")


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
        axes.text(1.02, height, f"{int(count)}", transform=place, fontsize=TEXT, color=color, va="center")
