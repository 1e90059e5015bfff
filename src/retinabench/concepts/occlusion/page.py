"""The page of an occlusion: its effects and example images in, one self-contained HTML page out.

The sentences are in `templates/occlusion.html.j2`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from retinabench.concepts.occlusion.effects import Effect, Occlusion
from retinabench.core.errors import printable
from retinabench.core.files import write_bytes
from retinabench.metrics.proportions import Interval
from retinabench.reports.evaluation.examples import data_uri
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.figures import WIDTH, canvas, light_grid, math_free, to_svg
from retinabench.reports.toolkit.number_format import NumberFormat, Quantity, plain
from retinabench.reports.toolkit.style import HUES, INK, MUTED, PAPER, Panel
from retinabench.reports.toolkit.tables import UNDEFINED, Cell, Column, Row, Table

PACKAGE = "retinabench.concepts.occlusion"
TITLE = "Do the lesions drive the referral?"
Measure = Literal["probability", "uncertainty", "epistemic"]
SHOWN = {"occluded": 0, "control": 1, "rendered": 2}
"""Changes that are drawn -> their hue."""
SIGNED = NumberFormat(3, signed=True)
SHARE = NumberFormat(1, scale=100, suffix=" %")


@dataclass(frozen=True)
class Example:
    """An image with and without a concept.

    Shapes: `versions` (S, S, 3).
    """

    concept: str
    image_id: str
    change: float
    versions: Sequence[tuple[str, NDArray[np.uint8], float]]


def write_page(found: Occlusion, examples: Sequence[Example], out: Path) -> Path:
    """Write the page; the same arguments give the same bytes."""
    effects = found.effects
    signs = {one.concept: _quantity(one.probability["difference"]).sign() for one in effects}
    context = {
        "title": TITLE,
        "found": found,
        "falls": [name for name, sign in signs.items() if sign < 0],
        "rises": [name for name, sign in signs.items() if sign > 0],
        "open": [name for name, sign in signs.items() if sign == 0],
        "together": next((one for one in effects if one.concept == "all concepts"), None),
        "figure": _figure(effects),
        "colors": [(f"c{SHOWN[kind]}", name) for kind, name in _names(found).items()],
        "probability": _table(effects, "probability", found.drawn),
        "uncertainty": _table(effects, "uncertainty", found.drawn),
        "epistemic": _table(effects, "epistemic", found.drawn) if found.samples > 1 else None,
        "counts": _counts(effects),
        "examples": [(one, [_version(*version) for version in one.versions]) for one in examples],
    }
    write_bytes(out / "index.html", pages.render("occlusion.html.j2", context, package=PACKAGE).encode())
    return out / "index.html"


def _names(found: Occlusion) -> dict[str, str]:
    names = {"occluded": "lesion filled", "control": "control filled"}
    return names | ({"rendered": "drawn without the lesion"} if found.drawn else {})


def _version(name: str, pixels: NDArray[np.uint8], probability: float) -> dict[str, str | int]:
    source, width, height = data_uri(pixels)
    return {"name": name, "source": source, "width": width, "height": height, "p": plain(probability, 3)}


def _quantity(change: Interval) -> Quantity:
    return Quantity(change.value, change.low, change.high)


def _figure(effects: Sequence[Effect]) -> Panel:
    """Draw the mean change of P(referable) of every concept, with intervals over patients."""
    figure = _forest(effects)
    said = "; ".join(
        f"{one.concept}: {plain(change, 3, signed=True)}"
        for one in effects
        if np.isfinite(change := one.probability["occluded"].value)
    )
    svg = to_svg(figure, "changes", title="Mean change of P(referable) by concept", description=said)
    return Panel("Mean change of P(referable), with 95 % intervals over patients", svg)


def _forest(effects: Sequence[Effect]) -> Figure:
    figure, [[axes]] = canvas(WIDTH, 60 + 46 * len(effects))
    for row, one in enumerate(effects):
        for kind, hue in SHOWN.items():
            quantity, place = _quantity(one.probability[kind]), row + (hue - 1) * 0.24
            if not quantity.defined:
                continue
            if quantity.bounded:
                axes.plot([quantity.low, quantity.high], [place, place], color=HUES[hue], linewidth=2)
            axes.plot([quantity.value], [place], "o", color=HUES[hue], markersize=5.5, markeredgecolor=PAPER)
    axes.axvline(0, color=MUTED, linewidth=0.7)
    axes.set(ylim=(len(effects) - 0.5, -0.5), xlabel="change of P(referable)")
    names = [math_free(printable(one.concept, limit=18)) for one in effects]
    axes.set_yticks(range(len(effects)), names, color=INK)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    light_grid(axes, "x")
    return figure


def _table(effects: Sequence[Effect], measure: Measure, drawn: bool) -> Table:
    heads = {"occluded": "Lesion filled", "control": "Control filled", "difference": "Effect of the lesion"}
    if drawn:
        heads |= {"rendered": "Drawn without it", "error": "Filled minus drawn"}
    rows = []
    for one in effects:
        changes = getattr(one, measure)
        cells = [_cell(changes[kind] if changes else None) for kind in heads]
        rows.append(Row(one.concept, cells))
    unit = "P(referable)" if measure == "probability" else f"{measure} uncertainty, nats"
    title = f"Mean change of {unit}, with 95 % intervals over patients".replace(
        "uncertainty uncertainty", "total uncertainty"
    )
    return Table.of(title, [Column(head) for head in heads.values()], rows, row_header="Concept")


def _cell(change: Interval | None) -> Cell:
    if change is None or not np.isfinite(change.value):
        return UNDEFINED
    return Cell(_quantity(change), SIGNED)


def _counts(effects: Sequence[Effect]) -> Table:
    columns = [Column("Images"), Column("Patients"), Column("Area filled"), Column("P as it is"),
               Column("Referred"), Column("No longer, filled"), Column("No longer, control")]  # fmt: skip
    rows = []
    for one in effects:
        numbers = (one.images, one.patients, one.referred, one.reversed_occluded)
        images, patients, referred, filled = (Cell(f"{number:,}") for number in numbers)
        area = Cell.number(one.area, form=SHARE)
        control = Cell(plain(one.reversed_control, 1))
        rows.append(
            Row(
                one.concept,
                [images, patients, area, Cell.number(one.before), referred, filled, control],
            )
        )
    return Table.of("Images, and decisions at one half that change", columns, rows, row_header="Concept")
