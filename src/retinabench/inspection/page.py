"""The data card of an inspected data set: a page that stands alone, and Markdown; the text is in `templates/`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from retinabench.data.registry import DATASETS
from retinabench.inspection.duplicates import CORRELATED, EVENLY, CopyPair
from retinabench.inspection.inspection import Inspection, findings
from retinabench.inspection.sheets import Tile, data_uri
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.number_format import COUNT, THREE_DIGITS, NumberFormat, join_names, plain
from retinabench.reports.toolkit.pages import Fact
from retinabench.reports.toolkit.tables import Block, Cell, Column, Row, Table

PACKAGE = "retinabench.inspection"
MOST_ROWS = 20
SHARE = NumberFormat(1, scale=100, suffix=" %")
CAMERAS_NOTE = (
    "The size of the original image distinguishes cameras and centres. Where the share of referable images depends on it, "
    "a model can infer the label from the camera."
)
COPIES_NOTE = (
    "Copies across splits first, then conflicting ones. Equal bytes: the original files are equal. Equal pixels: the prepared "
    "images are equal. Same retina: turned, mirrored, scaled and shifted as stated, the second image has the fine detail of "
    f"the first; a file saved again, or one eye imaged twice. Correlation: over their overlap, {CORRELATED} at least; in "
    f"blocks: its lower quartile over those of 36 blocks that mostly overlap, {EVENLY} at least."
)
OUTLIERS_NOTE = "Robust z-scores within the domain (modified z-score of Iglewicz and Hoaglin); images beyond 3.5 are listed."


@dataclass(frozen=True, eq=False)
class ImageGroup:
    """Images that are shown together.

    Attributes:
        file: File name of their contact sheet.
        heading: Heading of the group.
        tiles: The images.
        by_class: Whether the group shows a class rather than copies or outliers.
        paired: Whether the images are pairs.
    """

    file: str
    heading: str
    tiles: Sequence[Tile]
    by_class: bool
    paired: bool = False


@dataclass(frozen=True)
class TileCard:
    """An image of the page: its data URI and its tile."""

    source: str
    tile: Tile


def page(found: Inspection, groups: Sequence[ImageGroup]) -> str:
    """Return the data card as HTML: no script, nothing from the network, every text escaped."""
    shown = [(one, [TileCard(data_uri(tile.image), tile) for tile in one.tiles]) for one in groups]
    context = {
        **_context(found),
        "problems": [(one.heading, cards, one.paired) for one, cards in shown if not one.by_class],
        "classes": [(one.heading, cards) for one, cards in shown if one.by_class],
    }
    return pages.render("inspection.html.j2", context, package=PACKAGE)


def markdown(found: Inspection, groups: Sequence[ImageGroup]) -> str:
    """Return the data card as Markdown, with links to the contact sheets beside it."""
    return pages.render("card.md.j2", {**_context(found), "groups": groups}, package=PACKAGE)


def _context(found: Inspection) -> dict[str, object]:
    return {
        "title": f"Data set {found.data.name}",
        "data": found.data,
        "noun": found.classes.noun,
        "findings": list(findings(found)),
        "facts": _facts(found.data.name),
        "tables": list(tables(found)),
    }


def tables(found: Inspection) -> Iterator[Table]:
    """Yield the tables of the card that have rows; long ones are cut, and their notes say so."""
    for make in (_splits, _cameras, _copies, _leaks, _outliers, _bad):
        table = make(found)
        [block] = table.blocks
        if not block.rows:
            continue
        more = f"The first {MOST_ROWS} of {len(block.rows):,}; all are in inspection.json. "
        note = (more if len(block.rows) > MOST_ROWS else "") + table.note
        yield replace(table, blocks=[Block(block.columns, block.rows[:MOST_ROWS])], note=note.strip())


def _table(
    header: str, caption: str, texts: Sequence[str], numbers: Sequence[str], rows: list[Row], note: str = ""
) -> Table:
    """Return a table whose columns of text stand before those of numbers."""
    columns = [*(Column(name, text=True) for name in texts), *(Column(name) for name in numbers)]
    return Table.of(caption, columns, rows, row_header=header, note=note)


def _splits(found: Inspection) -> Table:
    counted = [f"{found.classes.noun.capitalize()} {k}" for k in range(len(found.classes.names))]
    rows = [
        Row(
            row.split,
            [*map(_count, (row.images, row.patients, *row.classes)), Cell.number(row.referable, form=SHARE)],
        )
        for row in found.splits
    ]
    return _table("Split", "Splits", (), ("Images", "Patients", *counted, "Referable"), rows)


def _cameras(found: Inspection) -> Table:
    rows = []
    for row in found.cameras:
        counts = [_count(row.images), _count(round(row.median_bytes / 1000))]
        cells = [Cell(f"{row.width} × {row.height}"), *counts, Cell.number(row.referable, form=SHARE)]
        rows.append(Row(row.domain.replace("_", "-"), cells))
    return _table("Domain", "Cameras", ("Pixels",), ("Images", "Median kB", "Referable"), rows, CAMERAS_NOTE)


def _copies(found: Inspection) -> Table:
    image_id = found.data.records.image_id
    rows = []
    for group in found.groups:
        for pair in group.pairs:
            (one, first), (other, second) = (group.facts(row) for row in pair.rows)
            texts = (" / ".join(dict.fromkeys((one, other))), f"{first} / {second}", evidence(pair))
            how = pair.alignment
            numbers = (pair.correlation, 1.0 if how is None else how.quarter)
            cells = [*map(Cell, texts), *(Cell.number(number, form=THREE_DIGITS) for number in numbers)]
            rows.append(Row(join_names([str(image_id[row]) for row in pair.rows]), cells))
    texts = ("Splits", f"{found.classes.noun.capitalize()}s", "Evidence")
    return _table("Images", "Copies", texts, ("Correlation", "In blocks"), rows, COPIES_NOTE)


def evidence(pair: CopyPair) -> str:
    """Say why two images are taken for copies: what is equal, or how the second one lies on the first."""
    how = pair.alignment
    if how is None:
        return pair.kind
    degrees = 180 - (180 - round(how.degrees)) % 360  # a half turn either way is one by 180°
    moved = ["mirrored"] * how.mirrored
    moved += [f"turned by {plain(degrees, 0)}°"] * (degrees != 0)
    moved += [f"scaled by {how.scale:.2f}"] * (how.scale != 1)
    return ", ".join([pair.kind, *moved])


def _leaks(found: Inspection) -> Table:
    rows = [
        Row(" and ".join(leak.splits), [*map(_count, (leak.patients, leak.fellow_eyes, leak.images))])
        for leak in found.leaks
    ]
    numbers = ("Patients in both", "By a fellow eye", "Images of the second")
    return _table("Splits", "Patients in two splits", (), numbers, rows)


def _outliers(found: Inspection) -> Table:
    image_id, form = found.data.records.image_id, NumberFormat(1, signed=True)
    rows = [
        Row(str(image_id[one.row]), [Cell(one.measure), Cell(one.what), Cell.number(one.z, form=form)])
        for one in found.outliers
    ]
    return _table("Image", "Outliers", ("Measure", "Description"), ("z",), rows, OUTLIERS_NOTE)


def _bad(found: Inspection) -> Table:
    bad = found.files.bad if found.files is not None else ()
    rows = [Row(one.image_id, [Cell(one.source), Cell(one.reason)]) for one in bad]
    return _table("Image", "Not prepared", ("File", "Reason"), (), rows)


def _count(number: int) -> Cell:
    return Cell.number(number, form=COUNT)


def _facts(name: str) -> list[Fact]:
    """Return the rows of the data card in the docstring of the data set's module; nothing for other data sets."""
    if name not in DATASETS:
        return []
    steps, text = DATASETS[name].steps, DATASETS[name].card
    rows = re.findall(r"^\|([^|\n]+)\|([^|\n]+)\|$", text, re.MULTILINE)
    pairs = [
        (term.strip(), content.strip().replace("`STEPS` below", steps).replace("`", ""))
        for term, content in rows
    ]
    return [Fact(term, content) for term, content in pairs if term and not set(term) <= set("-: ")]
