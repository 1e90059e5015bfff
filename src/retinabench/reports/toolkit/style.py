"""How figures look: colours that the colour-blind tell apart, line patterns, and SVG that lives inside a page.

Figures are drawn by matplotlib's object interface (never pyplot, no global state) in the light palette. `to_svg`
then hands every colour over to the page's style sheet (`var(--c0, #0067a5)`), so one drawing serves light and
dark pages, takes the page's font, and scales to its column.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape
from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

INK, MUTED, FAINT, PAPER = "#1d1d1b", "#6a6a66", "#dcdbd5", "#fffffe"
GOOD, BAD, PASS = "#2c6fae", "#c8452d", "#4f7f52"
HUES = ("#0067a5", "#c4461a", "#00805e", "#9a4f96", "#8a6d00", "#3d3d6b")
"""One hue per method, by its index: blue, vermilion, green, purple, ochre, indigo; each has 4.5 : 1 on paper."""
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.2, 1.6), (7, 2, 1.2, 2))
"""Line patterns in multiples of the line width: solid, dashed, dotted, dash-dotted."""

_VARIABLES = {
    INK: "ink", MUTED: "muted", FAINT: "faint", PAPER: "paper", GOOD: "good", BAD: "bad", PASS: "pass",
    **{hue: f"c{i}" for i, hue in enumerate(HUES)},
}  # fmt: skip
_RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.unicode_minus": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "lines.linewidth": 1.6,
    "path.simplify": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "retinabench",
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
}


@dataclass(frozen=True)
class Mark:
    """The colour and line pattern of one method, the same in every figure of a page."""

    hue: int
    dash: int

    @property
    def color(self) -> str:
        """The hue in the light palette."""
        return HUES[self.hue]

    @property
    def dashes(self) -> tuple[float, ...]:
        """The line pattern in multiples of the line width."""
        return DASHES[self.dash]

    @property
    def linestyle(self) -> tuple[float, tuple[float, ...] | None]:
        """The line pattern as matplotlib takes it."""
        return (0, self.dashes or None)


def mark(index: int) -> Mark:
    """Return the mark of method `index`: hue and pattern both change, no pair returns before 24 methods."""
    return Mark(index % len(HUES), (index + index // 12) % len(DASHES))


@contextlib.contextmanager
def house_style() -> Iterator[None]:
    """Draw by the settings of this file alone, whatever a user's own matplotlib settings are."""
    with rc_context():
        rcdefaults()
        rcParams.update(_RC)
        yield


def canvas(
    width: float, height: float, rows: int = 1, columns: int = 1, *, sharex: bool = False
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure of `width` x `height` CSS pixels and its axes by row and column."""
    with house_style():
        layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02)
        figure = Figure(figsize=(width / 72, height / 72), layout=layout)
        axes = figure.subplots(rows, columns, squeeze=False, sharex=sharex)
    return figure, [list(row) for row in axes]


def to_svg(figure: Figure, name: str, *, title: str, description: str) -> Markup:
    """Return the figure as SVG to stand inside a page, the same bytes every time.

    Every id gets the prefix `name`, which must be unique in the page: clip paths of one figure would otherwise
    cut another. `title` and `description` are what a screen reader says.
    """
    with house_style(), io.StringIO() as out:
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(out, format="svg", metadata=nothing)
        drawing = out.getvalue()
    view = re.search(r'viewBox="([^"]+)"', drawing)
    assert view, "matplotlib writes a viewBox"
    body = drawing[drawing.index(">", view.end()) + 1 : drawing.rindex("</svg>")]
    body = re.sub(r"<(metadata|style)\b.*?</\1>|<!--.*?-->|<defs>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r"-?\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", body)
    body = _themed(_namespaced(body, name))
    return Markup(
        '<svg viewBox="{}" role="img" aria-labelledby="{}-title {}-desc">'
        '<title id="{}-title">{}</title><desc id="{}-desc">{}</desc>{}</svg>'
    ).format(view[1], name, name, name, title, name, description, Markup(re.sub(r"\n\s*", "\n", body)))


def _namespaced(body: str, name: str) -> str:
    """Prefix the ids that something points to and drop all others."""
    used = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", body))
    wanted = {a or b for a, b in used}

    def rename(match: re.Match[str]) -> str:
        return f' id="{name}-{match[1]}"' if match[1] in wanted else ""

    body = re.sub(r'\sid="([^"]*)"', rename, body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    return re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', body)


def _themed(body: str) -> str:
    """Let the page's style sheet choose colours and font."""
    for color, variable in _VARIABLES.items():
        body = body.replace(color, f"var(--{variable}, {color})")
    body = re.sub(r"font: (?:[a-z0-9]+ )*?([\d.]+px)[^;\"]*", r"font-size: \1", body)
    return re.sub(r"font-family: [^;\"]*; ?", "", body)


def swatch(mark: Mark) -> Markup:
    """Return a short piece of a method's line for the legend in the page."""
    dashes = " ".join(f"{2 * part:g}" for part in mark.dashes)
    return Markup(
        '<svg class="swatch" viewBox="0 0 34 8" aria-hidden="true"><line x1="1" x2="33" y1="4" y2="4" '
        'style="stroke:var(--c{}, {});stroke-width:2.4;stroke-dasharray:{}"/></svg>'
    ).format(mark.hue, mark.color, dashes or "none")


def sentence_list(names: Sequence[str]) -> Markup:
    """Join escaped names as prose does: "A", "A and B", "A, B and C"."""
    parts = [escape(name) for name in names]
    if len(parts) < 2:
        return Markup("").join(parts)
    return Markup(", ").join(parts[:-1]) + Markup(" and ") + parts[-1]
