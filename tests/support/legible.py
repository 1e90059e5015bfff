"""Figures in tests: all that a module draws are legible (no text covers another one or leaves the canvas), or none are drawn."""

from collections.abc import Iterator
from itertools import combinations
from weakref import WeakSet

import pytest
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from retinabench.reports.toolkit import figures

SLACK = 1.0  # points of a box that hold no ink


@pytest.fixture(scope="module")
def legible() -> Iterator[None]:
    """Looks at each figure that is saved while a module's tests run, once."""
    save, seen = Figure.savefig, WeakSet[Figure]()

    def checked(figure: Figure, *arguments: object, **options: object) -> None:
        save(figure, *arguments, **options)
        if figure in seen:  # in another format
            return
        seen.add(figure)
        if options.get("format") != "svg" or figure.dpi != FigureCanvasSVG.fixed_dpi:  # else all is in its place
            figure.draw_without_rendering()
        boxes = drawn_texts(figure)
        canvas = figure.bbox.padded(SLACK)
        outside = [text for text, box in boxes if not (canvas.contains(*box.min) and canvas.contains(*box.max))]
        assert not outside, f"texts leave the canvas: {outside}"
        inner = [(text, box.padded(-SLACK)) for text, box in boxes]
        covered = [(a, b) for (a, one), (b, other) in combinations(inner, 2) if one.overlaps(other)]
        assert not covered, f"texts cover each other: {covered}"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", checked)
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures with their titles and descriptions, without drawings: these take half of the time of a page."""
    from torture.trial import save_blank

    monkeypatch.setattr(Figure, "savefig", save_blank)
    monkeypatch.setattr(Figure, "draw_without_rendering", lambda figure: None)
    monkeypatch.setattr(figures, "_lay_out", lambda figure: None)


def drawn_texts(figure: Figure) -> list[tuple[str, Bbox]]:
    """The texts of a figure with their boxes, without those of ticks beyond the ends of an axis, which are not drawn."""
    hidden: set[Text] = set()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            shown = axis._update_ticks() if axes.axison else []
            more = {*axis.get_major_ticks(), *axis.get_minor_ticks()} - {*shown}
            hidden |= {label for tick in more for label in (tick.label1, tick.label2)}
            hidden |= set() if axes.axison else {axis.label}
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text not in hidden]
    texts = [text for text in shown if text.get_text().strip()]
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    return [(text, box) for text, box in boxes if box.width > 2 * SLACK and box.height > 2 * SLACK]
