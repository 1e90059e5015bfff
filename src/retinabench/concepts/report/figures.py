"""The figures of an examination: functions from plain arrays to a matplotlib figure, one small panel each.

The axis a = (truth + P(yes)) / 2 is labelled by what it means: P(yes) from 0 to 1 where the concept is absent, then again where
it is present. The border between the halves is a wrong answer given with certainty, on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from retinabench.core.errors import printable
from retinabench.reports.evaluation.figures import WIDTH, Floats, Line, thin
from retinabench.reports.toolkit.figures import canvas
from retinabench.reports.toolkit.style import BAD, FAINT, GOOD, HUES, INK, MUTED, PAPER

REGIONS = (("TN", GOOD), ("FP", BAD), ("FN", BAD), ("TP", GOOD))
HEIGHT = 270


def performance_panel(
    bins: Floats, grid: Floats, mean: Floats, sd: Floats, *, limits: tuple[float, float] | None = None
) -> Figure:
    """Draw the process of one concept over its four regions: mean, 95 % band (2 sd), and the counts that it has seen.

    bins: (100,) answers; grid, mean, sd: (101,). limits: of the axis of counts; default: what these data need.
    """
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    low, top = limits or reach(bins, mean, sd)
    for number, (name, color) in enumerate(REGIONS):
        axes.axvspan(number / 4, (number + 1) / 4, color=color, alpha=0.07, linewidth=0)
        place = axes.get_xaxis_transform()
        axes.text(
            number / 4 + 0.125,
            1.02,
            name,
            transform=place,
            color=color,
            fontsize=11,
            ha="center",
            va="bottom",
        )
    axes.axvline(0.5, color=MUTED, linewidth=0.7)
    axes.axhline(0, color=FAINT, linewidth=0.7, zorder=1)
    axes.fill_between(grid, mean - 2 * sd, mean + 2 * sd, color=HUES[0], alpha=0.22, linewidth=0, zorder=2)
    axes.plot(grid, mean, color=HUES[0], zorder=3)
    seen = np.flatnonzero(bins)
    axes.plot(
        (seen + 0.5) / 100, bins[seen], linestyle="none", marker="o", markersize=3.4, color=INK, zorder=4
    )
    axes.set(xlim=(0, 1), ylim=(1.06 * low, 1.06 * top), ylabel="answers")
    axes.set_xticks([0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1])
    axes.set_xticklabels(["0", "", "½", "", "1 | 0", "", "½", "", "1"])
    axes.set_xlabel("P(yes), absent  |  P(yes), present")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return figure


def reach(bins: Floats, mean: Floats, sd: Floats) -> tuple[float, float]:
    """Return how far down and up the counts, the mean and its band reach; 0 and 1 are always shown."""
    return min(float((mean - 2 * sd).min()), 0.0), max(float(bins.max()), float((mean + 2 * sd).max()), 1.0)


def progress_panel(lines: Sequence[Line]) -> Figure:
    """Draw the mean uncertainty of a strategy against the number of questions, with the band over its repetitions."""
    figure, [[axes]] = canvas(WIDTH, 1.15 * HEIGHT)
    for line in lines:
        x, y, low, high = thin(line.x, line.y, line.low, line.high)
        assert x is not None
        assert y is not None
        if low is not None and high is not None:
            axes.fill_between(x, low, high, color=line.mark.color, alpha=0.12, linewidth=0)
        axes.plot(x, y, color=line.mark.color, linestyle=line.mark.linestyle, zorder=3)
    lowest, highest = min(line.y.min() for line in lines), max(line.y.max() for line in lines)
    margin = 0.06 * (highest - lowest) + 0.01
    axes.set(xlim=(0, None), ylim=(lowest - margin, highest + margin))
    axes.set(xlabel="questions", ylabel="uncertainty, mean over concepts")
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure


def interval_panel(rows: Sequence[tuple[str, Sequence[tuple[str, float | None, float, float]]]]) -> Figure:
    """Draw sensitivity and specificity of every concept as dots with their intervals.

    rows: per concept its name, and for sensitivity and specificity a colour, the value (None: not asked), low and high.
    """
    figure, [[axes]] = canvas(WIDTH, 56 + 40 * len(rows))
    for number, (_, rates) in enumerate(rows):
        for offset, (color, value, low, high) in zip((-0.15, 0.15), rates, strict=True):
            known = value is not None
            axes.plot(
                [low, high], [number + offset] * 2, color=color, linewidth=2, alpha=1 if known else 0.35,
                linestyle="-" if known else (0, (1, 2)),
            )  # fmt: skip
            if value is not None:
                axes.plot(
                    [value], [number + offset], marker="o", color=color, markersize=5.5, markeredgecolor=PAPER
                )
    axes.axvline(0.5, color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)))
    axes.set(xlim=(-0.01, 1.01), ylim=(len(rows) - 0.5, -0.5), xlabel="share of right answers")
    axes.set_yticks(range(len(rows)), [_short(name) for name, _ in rows], color=INK)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    return figure


def _short(name: str) -> str:
    # A dollar sign would open mathematics in matplotlib.
    return printable(name, limit=18).replace("$", r"\$")


def arrays(concept: dict[str, Any]) -> tuple[Floats, Floats, Floats, Floats]:
    """Return bins (100,), grid, mean and sd (101,) of a concept of an examination."""
    process = concept["gp"]
    bins, grid, mean, sd = (
        np.asarray(values, np.float64)
        for values in (concept["bins"], process["grid"], process["mean"], process["sd"])
    )
    return bins, grid, mean, sd
