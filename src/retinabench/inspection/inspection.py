"""`inspect_data`: everything that an inspection finds in a prepared data set, and its findings.

| finding | is |
|---|---|
| copies: equal bytes, equal pixels | SHA-256 of the files; prepared images |
| copies: same retina | aligned in rotation, mirroring, scale and shift, the fine detail correlates at 0.6, and at 0.48 in the lower quartile \
of 36 blocks; from 48 px; of more than 300 images only similar ones are compared |
| patients in two splits | by `patient_id`; *by a fellow eye* where the two eyes are parted |
| cameras | original sizes by domain and their referable share |
| outliers | modified z-scores (Iglewicz and Hoaglin 1993) beyond ± 3.5 of brightness, sharpness, original size and file size |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from retinabench.core.progress import QUIET, Progress
from retinabench.data.prepared.folder import Prepared
from retinabench.inspection.counts import (
    CameraRow,
    Classes,
    Leak,
    SplitRow,
    camera_rows,
    classes_of,
    leaks,
    split_names,
    split_rows,
)
from retinabench.inspection.duplicates import LEAST, CopyGroup, duplicate_groups
from retinabench.inspection.files import OriginalFiles, original_files
from retinabench.inspection.outliers import LIMIT, Outlier, outliers
from retinabench.inspection.pixels import read_pixels
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.pages import Finding


@dataclass(frozen=True, eq=False)
class Inspection:
    """What was found in a prepared data set.

    Attributes:
        data: The data set.
        read_images: Whether the images were read, not only the tables.
        classes: The classes by which images are counted.
        files: The original files, None where unknown.
        splits: Counts by split.
        cameras: Counts by original size.
        groups: Groups of copies.
        outliers: Images that differ from the others.
        leaks: Pairs of splits that share patients.
    """

    data: Prepared
    read_images: bool
    classes: Classes
    files: OriginalFiles | None
    splits: list[SplitRow]
    cameras: list[CameraRow]
    groups: list[CopyGroup]
    outliers: list[Outlier]
    leaks: list[Leak]


def inspect_data(data: Prepared, *, read_images: bool, progress: Progress = QUIET) -> Inspection:
    """Inspect a prepared data set."""
    files, classes = original_files(data), classes_of(data)
    pixels = read_pixels(data, progress) if read_images else None
    digests = files.sha256 if files is not None else None
    return Inspection(
        data=data,
        read_images=read_images,
        classes=classes,
        files=files,
        splits=list(split_rows(data.records, classes)),
        cameras=list(camera_rows(data.records, files)),
        groups=duplicate_groups(data, split_names(data.records), classes.of_row, digests, pixels, progress),
        outliers=outliers(data.records, files, pixels),
        leaks=list(leaks(data.records)),
    )


def findings(found: Inspection) -> Iterator[Finding]:
    """Yield what a user of the data set must know: copies, patients, bad files, outliers; see `templates/findings.j2`."""
    say = pages.macros("findings.j2", package="retinabench.inspection")

    def finding(name: str, mood: str, *facts: object) -> Finding:
        lead, _, text = str(getattr(say, name)(*facts)).strip().partition("|")
        return Finding(lead, text, mood)

    groups, noun = found.groups, found.classes.noun
    sources = ["the images"] * found.read_images + ["the original files"] * (found.files is not None)
    if groups:
        kinds = Counter(group.kind for group in groups)
        yield finding("copies", "", len(groups), kinds)
        if crossing := sum(group.crosses for group in groups):
            yield finding("copies_across_splits", "bad", crossing)
        again = [group.kind == LEAST for group in groups if group.conflicts]
        if wrong := again.count(False):
            yield finding("conflicting_classes", "bad", wrong, noun)
        if to_compare := again.count(True):
            yield finding("classes_to_compare", "", to_compare, noun)
    elif sources:
        yield finding("no_copies", "good", sources)
    records = found.data.records
    if len(np.unique(records.patient_id)) == len(records):
        yield finding("no_patients", "")
    elif not found.leaks:
        yield finding("no_leaks", "good")
    for leak in found.leaks:
        yield finding("leak", "bad", leak)
    if found.files is not None and found.files.bad:
        yield finding("bad_files", "bad", len(found.files.bad))
    if found.outliers:
        yield finding("outliers", "", len({outlier.row for outlier in found.outliers}), LIMIT)
