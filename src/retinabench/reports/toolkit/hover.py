"""Points of a figure that a reader can point at, with the text that the page shows for each.

A figure holds its own points, in the coordinates of its drawing. Figures of one `link` share the places of their points: what is
pointed at in one is shown in all. A trace may lead to the points of another link, such as from a threshold on an ROC curve to
the bin of probabilities that it lies in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from numpy.typing import NDArray

from retinabench.reports.toolkit.pages import script_json

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trace:
    """The points of one line.

    Attributes:
        key: What the line is about; the traces of other links with the same key are about the same.
        name: What the page calls it.
        color: Its variable of the style sheet, such as `c0`.
        x: (P,) places.
        y: (P,) values, NaN where there is none.
        texts: P texts.
        to: For each point the place in the trace with the same key of another link; empty where there is none.
        cuts: (P,) decision thresholds of the points, where they have one.
    """

    key: str
    name: str
    color: str
    x: Floats
    y: Floats
    texts: Sequence[str]
    to: Sequence[int] = ()
    cuts: Floats | None = None


def points(axes: Axes, link: str, traces: Sequence[Trace], heads: Sequence[str] = ()) -> Markup:
    """Return the points of a drawn figure for the page's script."""
    lines = [
        {
            "key": one.key, "name": one.name, "color": one.color, "texts": one.texts, "to": list(one.to),
            "points": _placed(axes, one.x, one.y),
            "cuts": [] if one.cuts is None else [round(cut, 6) for cut in one.cuts.tolist()],
        }
        for one in traces
    ]  # fmt: skip
    left, right = (round(one[0], 1) for one in _on_drawing(axes, np.array(axes.get_xlim()), np.zeros(2)))
    content = {"link": link, "heads": heads, "lines": lines, "span": [left, right, *_height(axes)]}
    return Markup('<script type="application/json" class="points">{}</script>').format(script_json(content))


def _placed(axes: Axes, x: Floats, y: Floats) -> list[Any]:
    clipped = np.clip(y, *axes.get_ylim())
    return [
        [round(a, 1), round(b, 1)] if np.isfinite(b) else None
        for a, b in _on_drawing(axes, x, clipped)
    ]  # fmt: skip


def _height(axes: Axes) -> list[float]:
    return [round(one[1], 1) for one in _on_drawing(axes, np.zeros(2), np.array(axes.get_ylim()))]


def _on_drawing(axes: Axes, x: Floats, y: Floats) -> list[tuple[float, float]]:
    """Return the places in the drawing, whose origin is its upper left corner, of points of axes with linear scales."""
    figure = axes.get_figure(root=True)
    assert figure is not None, "axes belong to a figure"
    box, (width, height) = axes.get_position(), 72 * figure.get_size_inches()
    (x0, x1), (y0, y1) = axes.get_xlim(), axes.get_ylim()
    across = (box.x0 + box.width * (x - x0) / (x1 - x0)) * width
    down = height - (box.y0 + box.height * (y - y0) / (y1 - y0)) * height
    return list(zip(across.tolist(), down.tolist(), strict=True))
