"""The charts of a monitor: evidence day by day, and shares per window of time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from numpy.typing import NDArray

from retinabench.metrics.monitoring.result import Evidence
from retinabench.metrics.proportions import Interval
from retinabench.reports.toolkit.figures import TEXT, WIDTH, canvas, light_grid, thin
from retinabench.reports.toolkit.style import BAD, MUTED, Mark, mark

HEIGHT = 260
LEAST, MOST = 1e-3, 1e9
"""Range of the evidence that is drawn."""


def evidence_panel(paths: Sequence[tuple[Mark, Evidence]], needed: float) -> Figure:
    """Draw evidence against a hypothesis day by day, on a logarithmic axis, with the line at which the alarm rings."""
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    least, largest = 1.0, needed
    for one, path in paths:
        wealth = np.exp(np.clip(path.log_wealth, np.log(LEAST), np.log(MOST)))
        least, largest = min(least, float(wealth.min())), max(largest, float(wealth.max()))
        places = thin(np.arange(len(wealth), dtype=np.float64)).astype(int)
        axes.plot(
            path.day[places], wealth[places], color=one.color, linestyle=one.linestyle, drawstyle="steps-post"
        )
        if path.alarm is not None:
            days = date2num(path.alarm)  # type: ignore[no-untyped-call]
            axes.axvline(float(days), color=one.color, linewidth=0.8, linestyle=(0, (2, 3)))
    axes.axhline(needed, color=BAD, linewidth=1)
    axes.annotate(
        f"alarm at {needed:g}", (0, needed), (4, 4), xycoords=("axes fraction", "data"), textcoords="offset points",
        color=BAD, fontsize=TEXT,
    )  # fmt: skip
    axes.set(yscale="log", ylim=(least / 3, 5 * largest), ylabel="evidence (1: none)")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))  # raised exponents would be too small to read
    _dated(axes)
    return figure


def window_panel(
    start: NDArray[np.datetime64], values: Sequence[Interval], label: str, goal: float | None = None
) -> Figure:
    """Draw a value per window of time with its interval.

    Shapes: `start` (W,).
    """
    figure, [[axes]] = canvas(WIDTH, HEIGHT)
    numbers = np.array([[one.value, one.low, one.high] for one in values], np.float64)
    known = np.isfinite(numbers[:, 0])
    color = mark(0).color
    axes.plot(start[known], numbers[known, 0], marker="o", markersize=4, linewidth=1, color=color)
    bounded = np.isfinite(numbers).all(axis=1)
    axes.vlines(
        start[bounded], numbers[bounded, 1], numbers[bounded, 2], color=color, linewidth=1.2, alpha=0.55
    )
    if goal is not None:
        axes.axhline(goal, color=BAD if goal else MUTED, linewidth=1)
    margin = max((start[-1] - start[0]) / 25, np.timedelta64(1, "D"))
    axes.set_xlim(start[0] - margin, start[-1] + margin)  # the same range where labels are missing at the end
    axes.set(ylabel=label)
    _dated(axes)
    return figure


def _dated(axes: Axes) -> None:
    locator = AutoDateLocator(minticks=3, maxticks=6)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    light_grid(axes, "y")
