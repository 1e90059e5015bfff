"""What the figures of the papers share: sizes, axes, titles, legends and names of files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from retinabench.reports.papers.results import TaskResults
from retinabench.reports.toolkit.figures import canvas
from retinabench.reports.toolkit.style import FAINT, MUTED, Mark

Floats = NDArray[np.float64]
PANEL = (6 * 72 * 0.62, 4 * 72 * 0.62)  # a panel: the 6 x 4 inches of the released plots, scaled; in points


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
    """Return the name of a figure's files, such as `figure-05-results-country-shift`."""
    lead = f"figure-{int(number):02d}" if number else "figure"
    return "-".join(part for part in (lead, kind, results.slug) if part)


def method_legend(figure: Figure, names: Sequence[str], marks: Sequence[Mark]) -> None:
    """Draw one legend below all panels, in as many columns as fit; the figure grows by the legend's height."""
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
    """Write `(a) In-domain` above a panel."""
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
    """Draw a grey reference curve with its name right of the panel."""
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
