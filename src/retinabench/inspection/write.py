"""Write an inspection: contact sheets, `inspection.json`, and the data card as a page and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core import files as atomic_files
from retinabench.core.progress import QUIET, Progress
from retinabench.core.results import JsonObject
from retinabench.core.version import __version__
from retinabench.inspection.counts import split_names
from retinabench.inspection.duplicates import CopyGroup, CopyPair
from retinabench.inspection.inspection import Inspection
from retinabench.inspection.outliers import Outlier
from retinabench.inspection.page import ImageGroup, evidence, markdown, page
from retinabench.inspection.sheets import COLUMNS, ROWS, Tile, chosen_of_class, contact_sheet
from retinabench.reports.toolkit.number_format import plain
from retinabench.reports.toolkit.pages import counted

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
            {
                "split": row.split,
                "images": row.images,
                "patients": row.patients,
                f"{noun}s": list(row.classes),
                "referable": row.referable,
            }
            for row in found.splits
        ],
        "cameras": [asdict(row) for row in found.cameras],
        "duplicates": [
            {
                "kind": group.kind,
                "correlation": group.correlation,
                "pairs": [_pair_to_dict(records.image_id, pair) for pair in group.pairs],
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


def _pair_to_dict(image_id: NDArray[np.str_], pair: CopyPair) -> JsonObject:
    """Return a pair with its evidence; files and pixels that are equal need no alignment."""
    names = [str(image_id[row]) for row in pair.rows]
    how = asdict(pair.alignment) if pair.alignment is not None else None
    return {"images": names, "kind": pair.kind, "alignment": how}


def _shown(found: Inspection, seed: int) -> Iterator[ImageGroup]:
    """Yield the groups of images: copies side by side, outliers, and images of every grade or label."""
    if found.groups:
        by_group = [[(group, pair) for pair in _worst_first(group)] for group in found.groups]
        # The worst pair of every group comes before the further pairs of any.
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
        chosen = chosen_of_class(of_row, number, seed).tolist()
        if chosen:
            total = int((of_row == number).sum())
            title = _title(f"{noun.capitalize()} {number}, {name}", len(chosen), total, "image")
            tiles = _tiles(found, chosen, names[chosen].tolist())
            yield ImageGroup(f"sheet-{noun}-{number}.png", title, tiles, by_class=True)


def _tiles(found: Inspection, rows: list[int], said: list[str]) -> list[Tile]:
    images, names = found.data.images(rows), found.data.records.image_id[rows].tolist()
    return [Tile(*parts) for parts in zip(images, names, said, strict=True)]


def _worst_first(group: CopyGroup) -> list[CopyPair]:
    """Return the pairs of a group, those first that differ in split or class."""
    return sorted(group.pairs, key=lambda pair: not _differs(group, pair))


def _differs(group: CopyGroup, pair: CopyPair) -> bool:
    """Whether the images of a pair are of different splits or classes."""
    one, other = (group.facts(row) for row in pair.rows)
    return one != other


def _tiles_of_pair(found: Inspection, group: CopyGroup, pair: CopyPair) -> Iterator[Tile]:
    """Yield both images of a pair; the second one's text has the evidence."""
    bad = _differs(group, pair)
    for row, said in zip(pair.rows, (pair.kind, evidence(pair)), strict=True):
        split, number = group.facts(row)
        text = f"{found.classes.noun} {number}, {split}, {said}"
        yield Tile(found.data.images([row])[0], str(found.data.records.image_id[row]), text, bad)


def _title(what: str, shown: int, total: int, noun: str) -> str:
    return f"{what}: {f'{shown:,} of ' if shown < total else ''}{counted(total, noun)}"
