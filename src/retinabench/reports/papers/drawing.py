"""What all figures share: how a method looks, how runs become a line with its band, and the three formats."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from retinabench.core.atomic_files import write_bytes
from retinabench.reports.papers.collect import Group
from retinabench.reports.toolkit.figures import canvas, figure_style
from retinabench.reports.toolkit.style import FAINT, HUES, MUTED, Mark

Floats = NDArray[np.float64]
PANEL = (6 * 72 * 0.62, 4 * 72 * 0.62)  # a panel: the released plots' 6 x 4 inches, scaled; in points
FORMATS: dict[str, dict[str, Any]] = {
    "svg": {"metadata": dict.fromkeys(("Date", "Creator", "Format", "Type"))},
    "pdf": {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
    "png": {"dpi": 200, "metadata": {"Software": None}},
}
# A file stands alone: letters are drawn, where a page would bring its font, and the ground is white.
ALONE: dict[Any, Any] = {
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "savefig.facecolor": "white",
    "font.size": 10,
}


@dataclass(frozen=True)
class Drawing:
    """A figure to draw: name of its files, its number in the paper ("" if none), title, caption, and how it is made."""

    name: str
    number: str
    title: str
    caption: str
    draw: Callable[[], Figure]


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as SVG, PDF and PNG, the same bytes every time; return the files."""
    files = []
    with figure_style(), rc_context(ALONE), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "Glyph .* missing"
        )  # a name in another alphabet: boxes, but a figure
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the layout stands: finding it again takes as long as drawing
        for kind, options in FORMATS.items():
            with io.BytesIO() as sink:
                figure.savefig(sink, format=kind, **options)
                files.append(stem.with_name(f"{stem.name}.{kind}"))
                write_bytes(files[-1], sink.getvalue())
    return files


def marks(groups: Sequence[Group]) -> list[Mark]:
    """One colour per method; single trainings solid, their ensembles dotted (from the seventh: dash-dotted, dashed)."""
    bases = list(dict.fromkeys(group.base for group in groups))
    found = []
    for group in groups:
        k = bases.index(group.base)
        solid, pooled = ((0, 2), (3, 1))[k // len(HUES) % 2]
        found.append(Mark(k % len(HUES), pooled if group.ensemble else solid))
    return found


def averaged(values: Sequence[Floats], ddof: int) -> tuple[Floats, Floats | None]:
    """Mean (P,) over runs, and its standard error, None for a single run."""
    array = np.array(values)
    mean = array.mean(axis=0)
    return mean, array.std(axis=0, ddof=ddof) / np.sqrt(len(array)) if len(array) > 1 else None


def line(axes: Axes, mark: Mark, x: Floats, values: Sequence[Floats], ddof: int = 1, **style: Any) -> Floats:
    """Draw the mean over runs with its band; return the mean."""
    mean, error = averaged(values, ddof)
    if error is not None:
        axes.fill_between(x, mean - error, mean + error, color=mark.color, alpha=0.15, linewidth=0)
    axes.plot(x, mean, color=mark.color, linestyle=mark.linestyle, linewidth=1.4, zorder=3, **style)
    return mean


def legend(figure: Figure, names: Sequence[str], looks: Sequence[Mark]) -> None:
    """One legend below all panels, in columns that fit."""
    from matplotlib.lines import Line2D

    longest = max(map(len, names))
    width = figure.get_size_inches()[0] * 72
    columns = max(1, min(len(names), int(width / (5.2 * longest + 45))))
    # The panels keep their height: the figure grows with its legend.
    figure.set_figheight(figure.get_figheight() + 13 / 72 * (-(-len(names) // columns) - 2))
    handles = [
        Line2D([], [], color=m.color, linestyle=(0, m.dashes) if m.dashes else "-", linewidth=1.8)
        for m in looks
    ]
    figure.legend(
        handles, [_plain(name) for name in names], loc="outside lower center", ncols=columns, frameon=False,
        fontsize=8.5, handlelength=3.2,
    )  # fmt: skip


def _plain(name: str) -> str:
    """A name without what matplotlib would read as mathematics."""
    return name.replace("$", r"\$")


def heading(axes: Axes, letter: str, text: str) -> None:
    """Put `(a) In-domain` above a panel."""
    axes.set_title(f"({letter}) {text}" if letter else text, fontsize=9.5, loc="left")


def referral_axes(axes: Axes, label: str) -> None:
    """Share referred across, a score of the kept images up."""
    axes.set(xlim=(0, 1), xlabel="referred to the expert", ylabel=label)
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    small(axes)


def small(axes: Axes) -> None:
    """The sizes of letters in a figure of several panels, and a faint grid."""
    axes.tick_params(labelsize=8)
    axes.xaxis.label.set_fontsize(9)
    axes.yaxis.label.set_fontsize(9)
    axes.grid(color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)


def control(axes: Axes, x: Floats, y: Floats, name: str) -> None:
    """Draw a grey reference curve with its name right of the panel, whose range must be set before."""
    known = y[np.isfinite(y)]
    if not known.size:
        return
    axes.plot(x, y, color=MUTED, linewidth=0.9, linestyle=(0, (1, 2)), zorder=2)
    low, high = axes.get_ylim()
    # Names of two curves that end at one height stand a line apart.
    height = float(np.clip((known[-1] - low) / (high - low), 0.02, 0.9 if name == "random" else 0.98))
    axes.text(1.01, height, name, transform=axes.transAxes, fontsize=7.5, color=MUTED, va="center")


def canvas_of(rows: int, columns: int) -> tuple[Figure, list[list[Axes]]]:
    """A figure of panels, each a scaled 6 x 4 inches, with room for the legend below."""
    figure, grid = canvas(PANEL[0] * columns + 10, PANEL[1] * rows + 46, rows, columns)
    figure.get_layout_engine().set(w_pad=0.05, h_pad=0.06)  # type: ignore[union-attr, call-arg]
    return figure, grid


def halo(text: Text) -> None:
    """Let a text be read where it lies on lines."""
    text.set_path_effects([withStroke(linewidth=2.2, foreground="white")])
