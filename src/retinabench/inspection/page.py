"""The page of `inspect`, its contact sheets and files."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from retinabench.core import files as atomic_files
from retinabench.core.errors import QUIET, InputError, Progress, check
from retinabench.core.files import check_writable
from retinabench.core.random_streams import numpy_generator
from retinabench.core.results import JsonObject
from retinabench.core.version import __version__
from retinabench.data.prepared import open_prepared
from retinabench.data.registry import DATASETS
from retinabench.inspection.duplicates import BLURRED, CORRELATED, EVENLY, CopyGroup, CopyPair
from retinabench.inspection.inspection import Inspection, Outlier, findings, inspect_data, split_names
from retinabench.predictions.io import read_predictions
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit import tables as toolkit
from retinabench.reports.toolkit.pages import Fact
from retinabench.reports.toolkit.tables import Block, Cell, Column, NumberFormat, Row, Table, counted, plain

COLUMNS, ROWS = 6, 4
SIDE, LINE, GAP = 160, 15, 10
PAPER, INK, MUTED, BAD = "#fffffe", "#1d1d1b", "#6a6a66", "#c8452d"


@dataclass(frozen=True, eq=False)
class Tile:
    """A labelled image."""

    image: NDArray[np.uint8]  # pixels, (S, S, 3)
    name: str  # first line of the label
    text: str = ""  # second line of the label
    bad: bool = False  # whether the second line is red

    @property
    def source(self) -> str:
        """The image as a JPEG data URI, for a page without other files."""
        with io.BytesIO() as out:
            thumbnail(self.image, 2 * SIDE).save(out, "JPEG", quality=80)
            return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"


def contact_sheet(title: str, tiles: Sequence[Tile]) -> bytes:
    rows = -(-len(tiles) // COLUMNS)
    height = SIDE + 2 * LINE + GAP
    page = Image.new("RGB", (COLUMNS * (SIDE + GAP) + GAP, 40 + rows * height), PAPER)
    draw = ImageDraw.Draw(page)
    draw.text((GAP, 10), title, INK, _font(16))
    font = _font(10)
    for k, tile in enumerate(tiles):
        x, y = GAP + k % COLUMNS * (SIDE + GAP), 40 + k // COLUMNS * height
        page.paste(thumbnail(tile.image, SIDE).resize((SIDE, SIDE), Image.Resampling.BILINEAR), (x, y))
        draw.text((x, y + SIDE + 2), _fitting(tile.name, font), INK, font)
        draw.text((x, y + SIDE + 2 + LINE), _fitting(tile.text, font), BAD if tile.bad else MUTED, font)
    with io.BytesIO() as out:
        page.save(out, "PNG")
        return out.getvalue()


def thumbnail(image: NDArray[np.uint8], side: int) -> Image.Image:
    small = Image.fromarray(np.ascontiguousarray(image))
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return small


def _font(size: int) -> ImageFont.FreeTypeFont:
    """Return DejaVu Sans, as Pillow's own font lacks the minus sign and accented letters."""
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)


def _fitting(text: str, font: ImageFont.FreeTypeFont) -> str:
    """Cut `text` in its middle until it fits below an image: ids often differ at their ends."""
    shown, keep = text, len(text)
    while keep > 2 and font.getlength(shown) > SIDE:
        keep -= 1
        shown = f"{text[: keep - keep // 2]}…{text[len(text) - keep // 2 :]}"
    return shown


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
    f"blocks: its lower quartile over those of 36 blocks that mostly overlap, {EVENLY} at least; blurred: without small spots, which "
    f"are the same where two retinas were photographed through one dirty lens, {BLURRED} at least."
)

OUTLIERS_NOTE = (
    "Robust z-scores within the domain (modified z-score of Iglewicz and Hoaglin); images beyond 3.5 are listed."
)


@dataclass(frozen=True, eq=False)
class ImageGroup:
    """Images that are shown together."""

    file: str  # file name of their contact sheet
    heading: str  # heading of the group
    tiles: Sequence[Tile]  # the images
    by_class: bool  # whether the group shows a class rather than copies or outliers
    paired: bool = False  # whether the images are pairs


def page(found: Inspection, groups: Sequence[ImageGroup]) -> str:
    """Return the data card as HTML: no script, nothing from the network, every text escaped."""
    parts = {"problems": False, "classes": True}
    divided = {name: [one for one in groups if one.by_class == of] for name, of in parts.items()}
    return pages.render("inspection.html.j2", _context(found) | divided, package=PACKAGE)


def markdown(found: Inspection, groups: Sequence[ImageGroup]) -> str:
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
    columns = [*(Column(name, text=True) for name in texts), *(Column(name) for name in numbers)]
    return Table.of(caption, columns, rows, row_header=header, note=note)


def _splits(found: Inspection) -> Table:
    counted = [f"{found.classes.noun.capitalize()} {k}" for k in range(len(found.classes.names))]
    rows = [
        Row(
            row.split,
            [*map(Cell.count, (row.images, row.patients, *row.classes)), Cell.number(row.referable, form=SHARE)],
        )
        for row in found.splits
    ]
    return _table("Split", "Splits", (), ("Images", "Patients", *counted, "Referable"), rows)


def _cameras(found: Inspection) -> Table:
    rows = []
    for row in found.cameras:
        counts = [Cell.count(row.images), Cell.count(round(row.median_bytes / 1000))]
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
            numbers = (1.0,) * 3 if how is None else (how.correlation, how.quarter, how.blurred)
            cells = [*map(Cell, texts), *(Cell.number(number, form=toolkit.THREE_DIGITS) for number in numbers)]
            rows.append(Row(toolkit.join_names([str(image_id[row]) for row in pair.rows]), cells))
    texts = ("Splits", f"{found.classes.noun.capitalize()}s", "Evidence")
    return _table("Images", "Copies", texts, ("Correlation", "In blocks", "Blurred"), rows, COPIES_NOTE)


def evidence(pair: CopyPair) -> str:
    """Say why two images are taken for copies: what is equal, or how the second one lies on the first."""
    how = pair.alignment
    if how is None:
        return pair.kind
    degrees = 180 - (180 - round(how.degrees)) % 360  # a half turn either way is one by 180°
    moved = [f"turned by {plain(degrees, 0)}°"] * (degrees != 0) + [f"scaled by {how.scale:.2f}"] * (how.scale != 1)
    return ", ".join([pair.kind, *["mirrored"] * how.mirrored, *moved])


def _leaks(found: Inspection) -> Table:
    rows = [
        Row(" and ".join(leak.splits), [*map(Cell.count, (leak.patients, leak.fellow_eyes, leak.images))])
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


def _facts(name: str) -> list[Fact]:
    """Return the rows of the data card in the docstring of the data set's module; nothing for other data sets."""
    if name not in DATASETS:
        return []
    steps, text = DATASETS[name].steps, DATASETS[name].card
    rows = re.findall(r"^\|([^|\n]+)\|([^|\n]+)\|$", text, re.MULTILINE)
    pairs = [(term.strip(), content.strip().replace("`STEPS` below", steps).replace("`", "")) for term, content in rows]
    return [Fact(term, content) for term, content in pairs if term and not set(term) <= set("-: ")]


SCHEMA = "retinabench.inspection/1"
MOST_SHOWN = COLUMNS * ROWS


def write_inspection(found: Inspection, out: Path, *, seed: int = 0, progress: Progress = QUIET) -> Path:
    """Write an inspection into a folder; the same arguments give the same bytes."""
    shown = list(_shown(found, seed))
    with progress.track("Writing sheets and data card", len(shown) + 3, unit="files") as advance:
        for one in shown:
            atomic_files.write_bytes(out / one.file, contact_sheet(one.heading, one.tiles))
            advance(1)
        atomic_files.write_json(out / "inspection.json", to_dict(found))
        atomic_files.write_bytes(out / "card.md", markdown(found, shown).encode())
        atomic_files.write_bytes(out / "index.html", page(found, shown).encode())
        advance(3)
    return out / "index.html"


def to_dict(found: Inspection) -> JsonObject:
    """Return the whole inspection as JSON content: every group, outlier and leak, with ids in place of rows."""
    records, files, noun = found.data.records, found.files, found.classes.noun
    return {
        "schema": SCHEMA,
        "version": __version__,
        "data": found.data.name,
        "size": found.data.size,
        "fingerprint": found.data.fingerprint,
        "read_images": found.read_images,
        "read_files": files is not None,
        "splits": [
            {f"{noun}s" if key == "classes" else key: value for key, value in asdict(row).items()}
            for row in found.splits
        ],
        "cameras": [asdict(row) for row in found.cameras],
        "duplicates": [
            {
                "kind": group.kind,
                "correlation": group.correlation,
                "pairs": [
                    {
                        "images": [str(records.image_id[row]) for row in pair.rows],
                        "kind": pair.kind,  # files and pixels that are equal need no alignment
                        "alignment": None if pair.alignment is None else asdict(pair.alignment),
                    }
                    for pair in group.pairs
                ],
                "across_splits": group.crosses,
                f"conflicting_{noun}s": group.conflicts,
                "images": [
                    {"image_id": str(records.image_id[row]), "split": split, noun: one}
                    for row, split, one in zip(group.rows, group.splits, group.classes, strict=True)
                ],
            }
            for group in found.groups
        ],
        "leaks": [asdict(leak) for leak in found.leaks],
        "outliers": [
            {"image_id": str(records.image_id[o.row]), "measure": o.measure, "z": o.z, "what": o.what}
            for o in found.outliers
        ],
        "bad_files": [asdict(bad) for bad in files.bad] if files is not None else [],
    }


def _shown(found: Inspection, seed: int) -> Iterator[ImageGroup]:
    """Yield the groups of images: copies side by side, outliers, and images of every grade or label."""
    if found.groups:
        # The worst pair of every group, one that differs in split or class, comes before the further pairs of any.
        by_group = [
            [(group, pair) for pair in sorted(group.pairs, key=lambda pair: not _differs(group, pair))]
            for group in found.groups
        ]
        every = [pairs[0] for pairs in by_group] + [one for pairs in by_group for one in pairs[1:]]
        shown = every[: MOST_SHOWN // 2]
        tiles = [tile for group, pair in shown for tile in _tiles_of_pair(found, group, pair)]
        title = _title("Copies, in pairs", len(shown), len(every), "pair")
        yield ImageGroup("sheet-copies.png", title, tiles, by_class=False, paired=True)
    worst: dict[int, Outlier] = {}
    for outlier in found.outliers:  # the furthest come first
        worst.setdefault(outlier.row, outlier)
    if worst:
        rows = list(worst)[:MOST_SHOWN]
        said = [f"{worst[row].what}, z {plain(worst[row].z, 1, signed=True)}" for row in rows]
        title = _title("Outliers of their domain", len(rows), len(worst), "image")
        yield ImageGroup("sheet-outliers.png", title, _tiles(found, rows, said), by_class=False)
    names = split_names(found.data.records)
    noun, of_row = found.classes.noun, found.classes.of_row
    for number, name in enumerate(found.classes.names):
        rows_of_class = np.flatnonzero(of_row == number)
        drawn = numpy_generator(seed, "inspect", number).permutation(rows_of_class)
        chosen = np.sort(drawn[:MOST_SHOWN]).tolist()
        if chosen:
            title = _title(f"{noun.capitalize()} {number}, {name}", len(chosen), len(drawn), "image")
            tiles = _tiles(found, chosen, names[chosen].tolist())
            yield ImageGroup(f"sheet-{noun}-{number}.png", title, tiles, by_class=True)


def _tiles(found: Inspection, rows: list[int], said: list[str]) -> list[Tile]:
    images, names = found.data.images(rows), found.data.records.image_id[rows].tolist()
    return [Tile(*parts) for parts in zip(images, names, said, strict=True)]


def _differs(group: CopyGroup, pair: CopyPair) -> bool:
    one, other = (group.facts(row) for row in pair.rows)
    return one != other


def _tiles_of_pair(found: Inspection, group: CopyGroup, pair: CopyPair) -> Iterator[Tile]:
    bad = _differs(group, pair)
    for row, said in zip(pair.rows, (pair.kind, evidence(pair)), strict=True):
        split, number = group.facts(row)
        text = f"{found.classes.noun} {number}, {split}, {said}"
        yield Tile(found.data.images([row])[0], str(found.data.records.image_id[row]), text, bad)


def _title(what: str, shown: int, total: int, noun: str) -> str:
    return f"{what}: {f'{shown:,} of ' if shown < total else ''}{counted(total, noun)}"


def inspect_lines(path: Path, out: Path | None = None, seed: int = 0, progress: Progress = QUIET) -> Iterator[str]:
    if (path / "prepare.json").is_file():
        data = open_prepared(path)
        if out is not None:
            if out.resolve() == path.resolve():
                raise InputError("is the data set itself", file=out, hint="Choose another --out.")
            check_writable(out)
        found = inspect_data(data, read_images=out is not None, progress=progress)
        page = write_inspection(found, out, seed=seed, progress=progress) if out is not None else None
        yield from _inspection(found)
        yield str(page or "copies among the images, outliers, contact sheets and a data card: add --out DIR")
    elif out is not None:
        raise InputError("is not a prepared data set; --out is for those", file=path, hint="Leave --out out.")
    elif (path / "run.json").is_file():
        yield from _run(path)
    elif path.is_dir():
        hint = "Prepare images with: retinabench prepare DATASET --source DIR --out DIR"
        raise InputError("is neither a run folder nor a prepared data set", file=path, hint=hint)
    else:
        yield from _predictions(path)


def _inspection(found: Inspection) -> Iterator[str]:
    data = found.data
    what = f"images of {data.size} px" if data.table is None else f"rows of {data.table.num_columns} features"
    yield f"data set {data.name}, {len(data.records):,} {what}, fingerprint {data.fingerprint[:12]}"
    for row in found.splits:
        counts = "/".join(str(n) for n in row.classes)
        classes = f"{found.classes.noun}s 0-{len(row.classes) - 1}: {counts}"
        images, patients = counted(row.images, "image"), counted(row.patients, "patient")
        yield f"  {row.split}: {images}, {patients}, {classes}"
    for finding in findings(found):
        yield f"{finding.lead} {finding.text}"


def _run(path: Path) -> Iterator[str]:
    state = "done" if (path / "done").is_file() else "unfinished"
    file = path / "run.json"
    try:
        about = json.loads(check(file).read_text())
        lines = [f"run, {state}, data fingerprint {about['fingerprint'][:12]}, version {about['version']}"]
        lines.append(json.dumps(about["run"]))
        if (path / "metrics.jsonl").is_file():
            file = path / "metrics.jsonl"
            last = json.loads(check(file).read_text().splitlines()[-1])
            lines.append("last epoch: " + ", ".join(f"{key} {value:.4g}" for key, value in last.items()))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise InputError("is damaged", file=file, hint="Train the run again.") from None
    yield from lines
    if (path / "predictions.parquet").is_file():
        yield from _predictions(path / "predictions.parquet")


def _predictions(path: Path) -> Iterator[str]:
    predictions = read_predictions(path)
    yield f"predictions, {counted(len(predictions), 'image')}, {counted(predictions.samples, 'sample')} each"
    for domain in ("in_domain", "shifted"):
        for split in ("validation", "test"):
            part = predictions.select(domain=domain, split=split)
            if part is not None:
                ids, images = part.patient_id, counted(len(part), "image")
                patients = "no patient ids" if ids is None else counted(len(np.unique(ids)), "patient")
                yield f"  {domain} {split}: {images}, {patients}, {int(part.label.sum()):,} referable"
    if predictions.metadata:
        yield "metadata: " + ", ".join(f"{key} {value}" for key, value in sorted(predictions.metadata.items()))
