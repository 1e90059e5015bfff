"""Everything that an inspection finds, and the sentences that say it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from retinabench.core.progress import QUIET, Progress
from retinabench.data.prepared import Prepared
from retinabench.inspection.classes import Classes, classes_of
from retinabench.inspection.duplicates import Group, duplicate_groups
from retinabench.inspection.files import Files, original_files
from retinabench.inspection.outliers import LIMIT, Outlier, outliers
from retinabench.inspection.pixels import look
from retinabench.inspection.tables import (
    CameraRow,
    Leak,
    SplitRow,
    camera_rows,
    leaks,
    split_names,
    split_rows,
)


@dataclass(frozen=True, eq=False)
class Inspection:
    """What was found in a prepared data set; `looked`: at the pictures too, not at the tables alone."""

    data: Prepared
    looked: bool
    classes: Classes
    files: Files | None
    splits: list[SplitRow]
    cameras: list[CameraRow]
    groups: list[Group]
    outliers: list[Outlier]
    leaks: list[Leak]


@dataclass(frozen=True)
class Finding:
    """One sentence. mood: `bad` where it makes a study wrong, `good` where nothing was found, else empty."""

    lead: str
    text: str
    mood: str


def examine(data: Prepared, *, pictures: bool, progress: Progress = QUIET) -> Inspection:
    """Examine a prepared data set: its tables, and with `pictures` every picture of it.

    Raises `InputError` where its table of files is damaged.
    """
    files, classes = original_files(data), classes_of(data)
    pixels = look(data, progress) if pictures else None
    digests = files.sha256 if files is not None else None
    return Inspection(
        data=data,
        looked=pictures,
        classes=classes,
        files=files,
        splits=list(split_rows(data.records, classes)),
        cameras=list(camera_rows(data.records, files)),
        groups=duplicate_groups(data, split_names(data.records), classes.of_row, digests, pixels),
        outliers=outliers(data.records, files, pixels),
        leaks=list(leaks(data.records)),
    )


def counted(number: int, one: str, several: str = "") -> str:
    """Return a number with its noun: `1 group`, `1,204 groups`."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def findings(found: Inspection) -> Iterator[Finding]:
    """Yield what a reader must know, the worst first in each part: copies, patients, bad files, outliers."""
    yield from _copies(found)
    yield from _patients(found)
    if found.files is not None and found.files.bad:
        number = counted(len(found.files.bad), "image")
        yield Finding("Not prepared.", f"{number} of the data set could not be read or was left out.", "bad")
    if found.outliers:
        number = counted(len({outlier.row for outlier in found.outliers}), "picture")
        text = f"{number} beyond ±{LIMIT} robust deviations of brightness, sharpness or size."
        yield Finding("Unlike the others.", text, "")


def _copies(found: Inspection) -> Iterator[Finding]:
    sought = ["the pictures"] if found.looked else []
    sought += ["the original files"] if found.files is not None else []
    if not sought:
        return
    groups = found.groups
    if not groups:
        yield Finding("No copies.", f"Nothing occurs twice among {' and '.join(sought)}.", "good")
        return
    kinds = [
        f"{sum(g.kind == kind for g in groups):,} {kind}" for kind in dict.fromkeys(g.kind for g in groups)
    ]
    text = f"{counted(len(groups), 'group')} of pictures that show the same ({', '.join(kinds)})."
    yield Finding("Copies.", text, "")
    if crossing := sum(group.crosses for group in groups):
        text = f"{counted(crossing, 'group')} with copies in different splits: what is tested there was seen before."
        yield Finding("Copies across splits.", text, "bad")
    if conflicting := sum(group.conflicts for group in groups):
        several = f"{found.classes.noun}s"
        text = f"{counted(conflicting, 'group')} whose copies carry different {several}: at least one of them is wrong."
        yield Finding(f"Conflicting {several}.", text, "bad")


def _patients(found: Inspection) -> Iterator[Finding]:
    records = found.data.records
    if len(np.unique(records.patient_id)) == len(records):
        yield Finding(
            "Patients.",
            "Every image has a patient of its own, or none are known: fellow eyes cannot be told.",
            "",
        )
    elif not found.leaks:
        yield Finding("Patients.", "No patient has images in two splits.", "good")
    for leak in found.leaks:
        eyes = f", {leak.fellow_eyes:,} of them by a fellow eye" if leak.fellow_eyes else ""
        text = (
            f"{counted(leak.patients, 'patient')} in both {leak.splits[0]} and {leak.splits[1]}{eyes}: "
            f"{counted(leak.images, 'image')} of {leak.splits[1]}."
        )
        yield Finding("Patients in two splits.", text, "bad")
