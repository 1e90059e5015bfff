"""Colours and line patterns of all figures and pages; nothing here loads matplotlib.

Colours are told apart by colour-blind readers. Figures are drawn in the light palette; inside a page each colour becomes a
variable of the style sheet (`var(--c0, #0067a5)`), so that one drawing serves light and dark pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from markupsafe import Markup

INK, MUTED, FAINT, PAPER = "#1d1d1b", "#6a6a66", "#dcdbd5", "#fffffe"
GOOD, BAD, PASS = "#2c6fae", "#c8452d", "#4f7f52"
HUES = ("#0067a5", "#c4461a", "#00805e", "#9a4f96", "#8a6d00", "#3d3d6b")
"""One hue per method, by its index: blue, vermilion, green, purple, ochre, indigo; each has a contrast of 4.5 : 1."""
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.2, 1.6), (7, 2, 1.2, 2))
"""Line patterns in multiples of the line width: solid, dashed, dotted, dash-dotted."""
VARIABLES = {
    INK: "ink", MUTED: "muted", FAINT: "faint", PAPER: "paper", GOOD: "good", BAD: "bad", PASS: "pass",
    **{hue: f"c{i}" for i, hue in enumerate(HUES)},
}  # fmt: skip
"""Colour -> variable of the style sheet."""


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

    @property
    def swatch(self) -> Markup:
        """A short piece of the line as SVG, for the legend of a page."""
        dashes = " ".join(f"{2 * part:g}" for part in self.dashes)
        return Markup(
            '<svg class="swatch" viewBox="0 0 34 8" aria-hidden="true"><line x1="1" x2="33" y1="4" y2="4" '
            'style="stroke:var(--c{}, {});stroke-width:2.4;stroke-dasharray:{}"/></svg>'
        ).format(self.hue, self.color, dashes or "none")


def mark(index: int) -> Mark:
    """Return the mark of method `index`: hue and pattern both change, and no pair repeats before 24 methods."""
    return Mark(index % len(HUES), (index + index // 12) % len(DASHES))


@dataclass(frozen=True)
class LegendEntry:
    """One line of a page's legend: a name behind the mark of its lines."""

    name: str
    mark: Mark


@dataclass(frozen=True)
class Panel:
    """A figure of a page: its heading, the drawing as SVG (may be empty), a caption, and its points (`hover.py`)."""

    heading: str
    svg: Markup
    caption: str = ""
    points: Markup = field(default_factory=Markup)
