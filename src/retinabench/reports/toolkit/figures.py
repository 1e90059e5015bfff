"""Figures and images of pages: colours and marks, canvases, SVG that stands inside a page, files that stand alone, and images as data URIs.

Colours are told apart by colour-blind readers. Figures are drawn in the light palette; inside a page each colour becomes a
variable of the style sheet (`var(--c0, #0067a5)`), so that one drawing serves light and dark pages. They are drawn by
matplotlib's object interface (never pyplot), under `figure_style()`. `to_svg` returns a drawing for a page, with the page's
colours and font; `save` writes files (SVG, PNG, PDF) with letters as outlines. Both return the same bytes for the same figure.
"""

from __future__ import annotations

import base64
import contextlib
import io
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from markupsafe import Markup
from matplotlib import rc_context, rcdefaults, rcParams
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray
from PIL import Image

from retinabench.core.errors import visible
from retinabench.core.files import write_bytes
from retinabench.metrics.weighted_images import Floats

INK, MUTED, FAINT, PAPER = "#1d1d1b", "#6a6a66", "#dcdbd5", "#fffffe"
GOOD, BAD, PASS = "#2c6fae", "#c8452d", "#4f7f52"
# One hue per method, by its index: blue, vermilion, green, purple, ochre, indigo; each has a contrast of 4.5 : 1.
HUES = ("#0067a5", "#c4461a", "#00805e", "#9a4f96", "#8a6d00", "#3d3d6b")
REST = "#b4b4ae"  # of the methods that a figure of many does not tell apart
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.2, 1.6), (7, 2, 1.2, 2))
"""Line patterns in multiples of the line width: solid, dashed, dotted, dash-dotted."""
# Colour -> variable of the style sheet.
VARIABLES = {
    INK: "ink", MUTED: "muted", FAINT: "faint", PAPER: "paper", GOOD: "good", BAD: "bad", PASS: "pass",
    REST: "rest", **{hue: f"c{i}" for i, hue in enumerate(HUES)},
}  # fmt: skip
PHONE = 350  # Width in CSS pixels of the content of a page on a phone.
WIDTH = 360  # Width in CSS pixels of a panel that a page sets beside others, which a phone shows at about this size.
TEXT = 13  # Size of the text of a page's figures in CSS pixels at their own width.
SMALLEST_TEXT = 12  # Size in CSS pixels below which no text of a page's figure is ever shown.
MOST_POINTS = 200
FORMATS: dict[str, dict[str, Any]] = {
    "svg": {"metadata": dict.fromkeys(("Date", "Creator", "Format", "Type"))},
    "pdf": {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
    "png": {"metadata": {"Software": None}},
}
_RC: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": TEXT,
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
    "xtick.labelsize": "medium",
    "ytick.labelsize": "medium",
}
ImageSource = Callable[[str], NDArray[np.uint8] | None]  # image_id -> its pixels (H, W, 3), None where there are none.
SIDE = 300
DARK = 20
QUALITIES = (84, 60, 35, 15)
MOST_BYTES = 20_000  # of one image in the page, if the lowest quality allows it
_DRAWING = threading.RLock()


@dataclass(frozen=True)
class Mark:
    """The colour and line pattern of one method, the same in every figure of a page; the hue behind the last one is grey."""

    hue: int
    dash: int

    @property
    def color(self) -> str:
        return (*HUES, REST)[self.hue]

    @property
    def dashes(self) -> tuple[float, ...]:
        return DASHES[self.dash]

    @property
    def linestyle(self) -> tuple[float, tuple[float, ...] | None]:
        return (0, self.dashes or None)

    @property
    def swatch(self) -> Markup:
        dashes = " ".join(f"{2 * part:g}" for part in self.dashes)
        return Markup(
            '<svg class="swatch" viewBox="0 0 34 8" aria-hidden="true"><line x1="1" x2="33" y1="4" y2="4" '
            'style="stroke:var(--{}, {});stroke-width:2.4;stroke-dasharray:{}"/></svg>'
        ).format(VARIABLES[self.color], self.color, dashes or "none")


def mark(index: int) -> Mark:
    return Mark(index % len(HUES), (index + index // 12) % len(DASHES))


OTHERS = Mark(len(HUES), 0)


@dataclass(frozen=True)
class LegendEntry:
    """One line of a page's legend: a name behind the mark of its lines."""

    name: str
    mark: Mark


@dataclass(frozen=True)
class Panel:
    """A figure of a page: its heading, the drawing as SVG (may be empty), and a caption."""

    heading: str
    svg: Markup
    caption: str = ""

    @property
    def wide(self) -> bool:
        """Whether a phone scrolls the drawing, which a keyboard must then reach."""
        found = re.search(r"min-width:(\d+)px", self.svg)
        return found is not None and int(found[1]) > PHONE

    @classmethod
    def of(cls, figure: Figure, name: str, heading: str, description: str, title: str = "", caption: str = "") -> Panel:
        """Return a figure under its heading; `name` is unique on the page, `description` is for screen readers."""
        return cls(heading, to_svg(figure, name, title=title or heading, description=description), caption)


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Draw by matplotlib's own defaults, whatever a user's settings are, one thread at a time; also a decorator of what draws a page."""
    with _DRAWING, rc_context():
        rcdefaults()
        yield


@contextlib.contextmanager
def figure_style() -> Iterator[None]:
    with drawing():
        rcParams.update(_RC)
        yield


def canvas(
    width: float, height: float, rows: int = 1, columns: int = 1, *, sharex: bool = False, text: int = TEXT
) -> tuple[Figure, list[list[Axes]]]:
    with figure_style(), rc_context({"font.size": text}):
        layout = ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02)
        figure = Figure(figsize=(width / 72, height / 72), layout=layout)
        axes = figure.subplots(rows, columns, squeeze=False, sharex=sharex)
    return figure, [list(row) for row in axes]


def light_grid(axes: Axes, axis: Literal["both", "x", "y"] = "y") -> None:
    axes.grid(axis=axis, color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


def percent_axis(axis: Axis) -> None:
    axis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))


def diagonal(axes: Axes) -> None:
    axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.7, linestyle=(0, (2, 3)), zorder=1)


def goal_region(axes: Axes, fpr: float, sensitivity: float, markersize: float) -> None:
    axes.fill_between([0, fpr], sensitivity, 1, color=PASS, alpha=0.13, linewidth=0)
    axes.plot([fpr], [sensitivity], marker="o", markersize=markersize, color=PASS, linestyle="none", zorder=5)


@dataclass(frozen=True)
class Line:
    """A curve with an optional band: `x`, `y`, `low`, `high` of shape (P,), NaN where undefined."""

    mark: Mark
    x: Floats
    y: Floats
    low: Floats | None = None
    high: Floats | None = None


def draw_lines(axes: Axes, lines: Sequence[Line]) -> None:
    for line in lines:
        if line.low is not None and line.high is not None:
            low, high = thin(line.low), thin(line.high)
            axes.fill_between(thin(line.x), low, high, color=line.mark.color, alpha=0.11, linewidth=0)
    for line in lines:
        width, order = (0.9, 2.5) if line.mark == OTHERS else (None, 3)
        axes.plot(
            thin(line.x), thin(line.y), color=line.mark.color, linestyle=line.mark.linestyle, linewidth=width, zorder=order,
        )  # fmt: skip


def thin(array: Floats) -> Floats:
    """Return at most `MOST_POINTS` evenly spaced points of an array (P,), the first and the last among them."""
    keep = np.unique(np.linspace(0, len(array) - 1, min(len(array), MOST_POINTS)).round().astype(int))
    return np.asarray(array[keep], np.float64)


def save(
    figure: Figure, stem: Path, formats: Sequence[str] = ("svg", "png"), *, dpi: int = 144, font_size: int = 11
) -> list[Path]:
    alone: dict[Any, Any] = {"svg.fonttype": "path", "pdf.fonttype": 42, "savefig.facecolor": "white"}
    files = []
    with figure_style(), rc_context(alone | {"font.size": font_size}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a letter that the font lacks becomes a box
        figure.draw_without_rendering()
        figure.set_layout_engine(None)  # finding the layout again for each format takes as long as drawing
        for kind in formats:
            with io.BytesIO() as sink:
                figure.savefig(sink, format=kind, dpi=dpi, **FORMATS[kind])
                files.append(stem.with_name(f"{stem.name}.{kind}"))
                drawn = sink.getvalue()
                # XML allows no control characters, and some may stand in a name.
                write_bytes(files[-1], visible(drawn.decode()).encode() if kind == "svg" else drawn)
    return files


def math_free(name: str) -> str:
    """Return a name in which matplotlib reads no mathematics: a dollar sign would open it."""
    return name.replace("$", r"\$")


def to_svg(figure: Figure, name: str, *, title: str, description: str) -> Markup:
    """Return the figure as SVG to stand inside a page, the same bytes every time."""
    with figure_style(), io.StringIO() as out, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # the text stays text: the reader's fonts may have it
        _lay_out(figure)
        figure.savefig(out, format="svg", **FORMATS["svg"])
        drawing = out.getvalue()
    view = re.search(r'viewBox="([^"]+)"', drawing)
    assert view, "matplotlib writes a viewBox"
    body = drawing[drawing.index(">", view.end()) + 1 : drawing.rindex("</svg>")]
    body = re.sub(r"<(metadata|style)\b.*?</\1>|<!--.*?-->|<defs>\s*</defs>", "", body, flags=re.DOTALL)
    # The coordinates in the tags are shortened; the text between them stays as it is.
    body = re.sub(r"<[^>]*>", lambda tag: re.sub(r"-?\d+\.\d{3,}", lambda n: f"{float(n[0]):.2f}", tag[0]), body)
    body = _namespaced(body, name)
    for color, variable in VARIABLES.items():
        body = body.replace(color, f"var(--{variable}, {color})")
    body = re.sub(r"font: (?:[a-z0-9]+ )*?([\d.]+px)[^;\"]*", r"font-size: \1", body)
    body = re.sub(r"font-family: [^;\"]*; ?", "", body)
    smallest = min(map(float, re.findall(r"font-size: ([\d.]+)px", body)), default=TEXT)
    narrowest = float(view[1].split()[2]) * SMALLEST_TEXT / smallest
    drawn = Markup(re.sub(r"\n\s*", "\n", body))  # noqa: S704 - drawn by matplotlib, which escapes text
    return Markup(
        '<svg id="{0}-figure" viewBox="{1}" style="min-width:{2:.0f}px" role="img" aria-labelledby="{0}-title {0}-desc">'
        '<title id="{0}-title">{3}</title><desc id="{0}-desc">{4}</desc>{5}</svg>'
    ).format(name, view[1], narrowest, title, description, drawn)


def _lay_out(figure: Figure) -> None:
    """Place the axes as `savefig` would for SVG, which for that draws the whole figure once more."""
    engine = figure.get_layout_engine()
    if engine is not None:
        FigureCanvasSVG(figure)
        figure.dpi = FigureCanvasSVG.fixed_dpi
        engine.execute(figure)
        figure.set_layout_engine(None)


def _namespaced(body: str, name: str) -> str:
    """Prefix the ids that something points to and drop all others."""
    used = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", body))
    wanted = {a or b for a, b in used}

    def rename(match: re.Match[str]) -> str:
        return f' id="{name}-{match[1]}"' if match[1] in wanted else ""

    body = re.sub(r'\sid="([^"]*)"', rename, body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    return re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', body)


def data_uri(image: NDArray[np.uint8], side: int = SIDE) -> tuple[str, int, int]:
    bright = image.reshape(*image.shape[:2], -1).max(axis=2) > DARK
    rows, columns = (np.flatnonzero(bright.mean(axis=axis) > 0.02) for axis in (1, 0))
    if rows.size and columns.size:
        image = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    drawn = Image.fromarray(np.ascontiguousarray(image)).convert("RGB")
    if max(drawn.size) > side:
        drawn.thumbnail((side, side), Image.Resampling.LANCZOS)
    content = b""
    for quality in QUALITIES:
        with io.BytesIO() as out:
            drawn.save(out, "JPEG", quality=quality)
            content = out.getvalue()
        if len(content) <= MOST_BYTES:
            break
    return f"data:image/jpeg;base64,{base64.b64encode(content).decode()}", drawn.width, drawn.height
