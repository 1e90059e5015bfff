"""The figures of an examination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from retinabench.concepts.inference.unpredictability import GRID
from retinabench.concepts.questioning.examination import ConceptResult
from retinabench.core.errors import printable
from retinabench.reports.toolkit.figures import (
    BAD,
    GOOD,
    HUES,
    INK,
    MUTED,
    PAPER,
    TEXT,
    WIDTH,
    canvas,
    light_grid,
    math_free,
)
from retinabench.reports.toolkit.tables import Quantity


@dataclass(frozen=True)
class RateMark:
    """A rate in its colour, with the goal that it is judged by; an undefined value draws its interval alone."""

    color: str
    quantity: Quantity
    goal: float | None = None


REGIONS = (("TN", GOOD), ("FP", BAD), ("FN", BAD), ("TP", GOOD))
HEIGHT = 270


def performance_panel(concept: ConceptResult) -> Figure:
    """Draw the Gaussian process of one concept over its four regions: mean, band of 2 std, observed counts; nothing below 0."""
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    bins, mean, sd = concept.bins, concept.gp.mean, concept.gp.sd
    top = max(float(bins.max()), float((mean + 2 * sd).max()), 1.0)
    for number, (name, color) in enumerate(REGIONS):
        axes.axvspan(number / 4, (number + 1) / 4, color=color, alpha=0.07, linewidth=0)
        place = axes.get_xaxis_transform()
        axes.text(number / 4 + 0.125, 1.02, name, transform=place, color=color, fontsize=TEXT, ha="center", va="bottom")
    axes.axvline(0.5, color=MUTED, linewidth=0.7)
    low, high = (np.maximum(mean + sign * 2 * sd, 0) for sign in (-1, 1))
    axes.fill_between(GRID, low, high, color=HUES[0], alpha=0.22, linewidth=0, zorder=2)
    axes.plot(GRID, np.where(mean < 0, np.nan, mean), color=HUES[0], zorder=3)
    seen = np.flatnonzero(bins)
    axes.plot((seen + 0.5) / 100, bins[seen], linestyle="none", marker="o", markersize=3.4, color=INK, zorder=4)
    axes.set(xlim=(0, 1), ylim=(-0.02 * top, 1.06 * top), ylabel="answers")  # a count is never below 0
    axes.set_xticks([0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1])
    axes.set_xticklabels(["0", "", "½", "", "1 | 0", "", "½", "", "1"])
    axes.set_xlabel("P(yes), absent  |  P(yes), present")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return figure


def interval_panel(
    rows: Sequence[tuple[str, Sequence[RateMark]]],
    *,
    label: str = "share of right answers",
    middle: float = 0.5,
    limits: tuple[float, float] | None = (-0.01, 1.01),
) -> Figure:
    several = max((len(marks) for _, marks in rows), default=1)
    figure, [[axes]] = canvas(WIDTH, 56 + (24 + 8 * several) * len(rows))
    for number, (_, marks) in enumerate(rows):
        for k, rate in enumerate(marks):
            known, place = rate.quantity.defined, number + 0.6 * ((k + 0.5) / several - 0.5)
            axes.plot(
                [rate.quantity.low, rate.quantity.high], [place, place], color=rate.color, linewidth=2,
                alpha=1 if known else 0.35, linestyle="-" if known else (0, (1, 2)),
            )  # fmt: skip
            if known:
                axes.plot([rate.quantity.value], [place], "o", color=rate.color, markersize=5.5, markeredgecolor=PAPER)
            if rate.goal is not None:
                axes.plot([rate.goal], [place], "|", color=INK, markersize=11, markeredgewidth=1.6)
    axes.axvline(middle, color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)))
    axes.set(xlim=limits, ylim=(len(rows) - 0.5, -0.5), xlabel=label)
    names = [math_free(printable(name, limit=18)) for name, _ in rows]
    axes.set_yticks(range(len(rows)), names, color=INK)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    light_grid(axes, "x")
    return figure
