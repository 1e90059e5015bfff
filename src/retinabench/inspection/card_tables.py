"""The tables of a data card, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from retinabench.inspection.duplicates import Group
from retinabench.inspection.examine import Inspection
from retinabench.reports.toolkit.number_format import plain

MOST_ROWS = 20
CAMERAS_NOTE = (
    "The size of the photograph tells cameras and centres apart. Where a size has a referable share of its own, "
    "a model can judge by the camera."
)
COPIES_NOTE = (
    "Across splits first, then by conflict. Equal bytes: the original files are equal. Equal pixels: the "
    "prepared pictures are. Nearly equal: their fine detail correlates; a copy saved anew, or the same eye "
    "photographed again."
)
OUTLIERS_NOTE = (
    "Robust deviations from the median of the domain (modified z-score of Iglewicz and Hoaglin); "
    "beyond 3.5 is listed."
)


@dataclass(frozen=True)
class Table:
    """A table of text: its caption, its columns and its rows; `texts`: how many columns hold words, not numbers."""

    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    texts: int = 1
    note: str = ""


def tables(found: Inspection) -> Iterator[Table]:
    """Yield the tables of the card that have rows; long ones are cut, and say so."""
    for table in (
        _splits(found),
        _cameras(found),
        _copies(found),
        _leaks(found),
        _outliers(found),
        _bad(found),
    ):
        more = f"The first {MOST_ROWS} of {len(table.rows):,}; all are in inspection.json. "
        note = (more if len(table.rows) > MOST_ROWS else "") + table.note
        if table.rows:
            yield Table(table.caption, table.columns, table.rows[:MOST_ROWS], table.texts, note.strip())


def _splits(found: Inspection) -> Table:
    counted = (f"{found.classes.noun.capitalize()} {k}" for k in range(len(found.classes.names)))
    columns = ("Split", "Images", "Patients", *counted, "Referable")
    return Table(
        "Splits",
        columns,
        [
            (row.split, *map(_count, (row.images, row.patients, *row.classes)), _percent(row.referable))
            for row in found.splits
        ],
    )


def _cameras(found: Inspection) -> Table:
    return Table(
        "Cameras",
        ("Domain", "Pixels", "Images", "Median kB", "Referable"),
        [
            (
                row.domain.replace("_", "-"), f"{row.width} × {row.height}", _count(row.images),
                _count(round(row.median_bytes / 1000)), _percent(row.referable),
            )
            for row in found.cameras
        ],
        texts=2,
        note=CAMERAS_NOTE,
    )  # fmt: skip


def _copies(found: Inspection) -> Table:
    return Table(
        "Copies",
        ("Images", "Splits", "Kind", f"{found.classes.noun.capitalize()}s", "Correlation"),
        [
            (
                _first(_ids(found, group)), " / ".join(dict.fromkeys(group.splits)), group.kind,
                _first([str(one) for one in group.classes], " / "), f"{group.correlation:.3f}",
            )
            for group in found.groups
        ],
        texts=3,
        note=COPIES_NOTE,
    )  # fmt: skip


def _leaks(found: Inspection) -> Table:
    return Table(
        "Patients in two splits",
        ("Splits", "Patients in both", "By a fellow eye", "Images of the second"),
        [
            (" and ".join(leak.splits), _count(leak.patients), _count(leak.fellow_eyes), _count(leak.images))
            for leak in found.leaks
        ],
    )


def _outliers(found: Inspection) -> Table:
    image_id = found.data.records.image_id
    return Table(
        "Unlike the others",
        ("Image", "Measure", "What", "z"),
        [
            (str(image_id[one.row]), one.measure, one.what, plain(one.z, 1, signed=True))
            for one in found.outliers
        ],
        texts=3,
        note=OUTLIERS_NOTE,
    )


def _bad(found: Inspection) -> Table:
    bad = found.files.bad if found.files is not None else ()
    return Table(
        "Not prepared",
        ("Image", "File", "Reason"),
        [(one.image_id, one.source, one.reason) for one in bad],
        texts=3,
    )


def _ids(found: Inspection, group: Group) -> list[str]:
    return [str(found.data.records.image_id[row]) for row in group.rows]


def _first(words: Sequence[str], between: str = ", ", most: int = 4) -> str:
    """Join the first few words, and say how many more there are."""
    more = [f"and {len(words) - most:,} more"] if len(words) > most else []
    return between.join([*words[:most], *more])


def _count(number: int) -> str:
    return f"{number:,}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
