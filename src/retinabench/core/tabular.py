"""Results that can be shown in a notebook: as a table, as a pandas DataFrame, and as a figure.

matplotlib is loaded by the first plot, never by a score. The figures of pages and files have a style of their own, see
`retinabench.reports.toolkit.figures`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from retinabench.core.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

BLUE, VERMILION, GREY = "#0067a5", "#c4461a", "#6a6a66"
SHOWN = 60
"""Rows of a longer table that a notebook shows; `to_dataframe` has all."""


class Tabular(ABC):
    """A result whose numbers are also rows of a table."""

    @abstractmethod
    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per row, all with the same keys; NaN where a number is undefined."""

    @abstractmethod
    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw the result.

        Args:
            axes: Where to draw; None: a new figure.

        Returns:
            The axes.
        """

    def to_dataframe(self) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise InputError(
                "to_dataframe needs pandas",
                hint="Install it with: pip install pandas. `records()` does without.",
            ) from None
        return pandas.DataFrame(self.records())

    def _repr_html_(self) -> str:
        """Return the rows as an HTML table, which notebooks show."""
        rows = self.records()
        head = "".join(f"<th>{escape(str(name))}</th>" for name in (rows[0] if rows else {}))
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_text(value))}</td>" for value in row.values()) + "</tr>"
            for row in rows[:SHOWN]
        )
        more = f"<p>{len(rows) - SHOWN:,} more rows</p>" if len(rows) > SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


@dataclass(frozen=True)
class IntervalRow:
    """One line of an interval plot: a value, the ends of its interval (NaN: none), and the value aimed at, if any."""

    label: str
    value: float
    low: float
    high: float
    goal: float | None = None


def axes_or_new(axes: Axes | None, height: float = 3.2) -> Axes:
    """Return axes.

    Args:
        axes: Those that the user gave.
        height: Height in inches of a new figure.

    Returns:
        The same, or those of a new figure.
    """
    if axes is not None:
        return axes
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(6.4, height), layout="constrained")[1]


def draw_intervals(
    rows: Sequence[IntervalRow], axes: Axes | None, *, label: str = "", zero: bool = False
) -> Axes:
    """Draw values and their intervals as one horizontal line each, from top to bottom.

    Args:
        rows: The lines.
        axes: Where to draw; None: a new figure.
        label: Label of the horizontal axis.
        zero: Whether zero is marked, as for differences.

    Returns:
        The axes.
    """
    axes = axes_or_new(axes, 0.9 + 0.28 * max(len(rows), 2))
    if zero:
        axes.axvline(0, color=GREY, linewidth=0.8, linestyle="--")
    for place, row in enumerate(rows):
        axes.plot([row.low, row.high], [place, place], color=BLUE, linewidth=1.6)
        axes.plot([row.value], [place], "o", color=BLUE, markersize=5)
        if row.goal is not None:
            axes.plot([row.goal], [place], "|", color=VERMILION, markersize=16, markeredgewidth=2)
    axes.set_yticks(range(len(rows)), [row.label.replace("$", r"\$") for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(label)
    return axes


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else "–"
    return str(value)
