"""What `inspect` computes of a data set: counts, outliers.

`inspect_data`: everything that an inspection finds in a prepared data set, and its findings.

| finding | is |
|---|---|
| copies: equal bytes, equal pixels | SHA-256 of the files; prepared images |
| copies: same retina | aligned in rotation, mirroring, scale and shift, the fine detail correlates at 0.6, and at 0.48 in the lower quartile of 36 blocks; once blurred, which removes the dirt of a lens, at 0.9, and 0.75 of what was missing to 1 is left at most; from 48 px; of more than 300 images only similar ones are compared |
| patients in two splits | by `patient_id`; *by a fellow eye* where the two eyes are parted |
| cameras | original sizes by domain and their referable share |
| outliers | modified z-scores (Iglewicz and Hoaglin 1993) beyond ± 3.5 of brightness, sharpness, original size and file size |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import QUIET, Progress
from retinabench.data.dataset import SPLITS, Records, referable
from retinabench.data.prepared import Prepared
from retinabench.inspection import duplicates
from retinabench.inspection.duplicates import LEAST, CopyGroup, OriginalFiles, Pixels, duplicate_groups, original_files
from retinabench.reports.toolkit.pages import Finding
from retinabench.reports.toolkit.tables import join_names, macros

GRADES = ("no retinopathy", "mild", "moderate", "severe", "proliferative")
LABELS = ("not referable", "referable")


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes by which images are counted and shown."""

    noun: str  # `grade` or `label`
    names: tuple[str, ...]  # the name of each class
    of_row: NDArray[np.int8]  # the class of each record, (N,)


@dataclass(frozen=True)
class SplitRow:
    """A split: numbers of images, patients and images per class (grade or label), and the share of referable images."""

    split: str
    images: int
    patients: int
    classes: tuple[int, ...]
    referable: float


@dataclass(frozen=True)
class CameraRow:
    """Images of one original size in one domain: the size distinguishes cameras and centres."""

    domain: str
    width: int
    height: int
    images: int
    median_bytes: int
    referable: float


@dataclass(frozen=True)
class Leak:
    """Patients with images in two splits."""

    splits: tuple[str, str]  # the two splits
    patients: int  # number of patients in both
    images: int  # number of images of the second split that belong to a patient of the first
    fellow_eyes: int  # number of patients whose other eye is in the other split


def split_names(records: Records) -> NDArray[np.str_]:
    """Return each row's split (N,): train, validation or test, with `shifted` before it outside the domain."""
    return np.where(records.domain == "shifted", np.char.add("shifted ", records.split), records.split)


def in_order(names: NDArray[np.str_]) -> list[str]:
    present = set(names.tolist())
    return [name for prefix in ("", "shifted ") for split in SPLITS if (name := prefix + split) in present]


def split_rows(records: Records, classes: Classes) -> Iterator[SplitRow]:
    names = split_names(records)
    for name in in_order(names):
        mine = names == name
        counts = np.bincount(classes.of_row[mine], minlength=len(classes.names)).tolist()
        patients = len(np.unique(records.patient_id[mine]))
        yield SplitRow(name, int(mine.sum()), patients, tuple(counts), float(referable(records.grade[mine]).mean()))


def camera_rows(records: Records, files: OriginalFiles | None) -> Iterator[CameraRow]:
    """Yield original sizes by domain, the commonest first; nothing where the sizes are not known."""
    if files is None:
        return
    sizes = np.stack([files.width, files.height], axis=1)
    for domain in np.unique(records.domain):
        mine = (records.domain == domain) & (sizes > 0).all(axis=1)
        found, which, counts = np.unique(sizes[mine], axis=0, return_inverse=True, return_counts=True)
        label, weight = referable(records.grade[mine]), files.bytes[mine]
        for k in np.argsort(-counts, kind="stable"):
            these = which.ravel() == k
            yield CameraRow(
                str(domain), int(found[k, 0]), int(found[k, 1]), int(counts[k]),
                int(np.median(weight[these])), float(label[these].mean()),
            )  # fmt: skip


def leaks(records: Records) -> Iterator[Leak]:
    names = split_names(records)
    people, patient = np.unique(records.patient_id, return_inverse=True)
    eyes = {side: records.eye == side for side in ("left", "right")}

    def count(mask: NDArray[np.bool_]) -> NDArray[np.intp]:
        return np.bincount(patient[mask], minlength=len(people))

    for first, second in combinations(in_order(names), 2):
        a, b = names == first, names == second
        both = (count(a) > 0) & (count(b) > 0)
        fellow = np.zeros(len(people), bool)
        for one, other in (("left", "right"), ("right", "left")):
            fellow |= (count(a & eyes[one]) > 0) & (count(b & eyes[other]) > 0)
        if both.any():
            yield Leak((first, second), int(both.sum()), int(count(b)[both].sum()), int(fellow.sum()))


LIMIT = 3.5  # Iglewicz and Hoaglin 1993

# Measure -> description of its low and of its high outliers.
NAMES = {
    "brightness": ("dark", "bright"),
    "sharpness": ("blurred", "grainy or over-sharpened"),
    "original size": ("few pixels", "many pixels"),
    "file size": ("few bytes per pixel", "many bytes per pixel"),
}


@dataclass(frozen=True)
class Outlier:
    """A row of the records, the measure in which it is an outlier, its robust z-score and a description."""

    row: int
    measure: str
    z: float
    what: str


def robust_z(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return 0.6745 (x - median) / MAD of values (N,), the modified z-score of Iglewicz and Hoaglin.

    Where more than half of the values are equal (MAD = 0), 1.2533 times the mean absolute deviation replaces
    MAD / 0.6745; where all are equal every score is 0.

    References:
        Iglewicz and Hoaglin, How to detect and handle outliers, ASQC (1993).
    """
    distance = np.asarray(values, np.float64) - np.median(values)
    scale = np.median(np.abs(distance)) / 0.6745 or np.abs(distance).mean() * 1.2533
    return distance / scale if scale > 0 else np.zeros(len(distance))


def outliers(records: Records, files: OriginalFiles | None, pixels: Pixels | None) -> list[Outlier]:
    """Return the images whose robust z-score within their domain is beyond ± 3.5 in any measure."""
    found = []
    for domain in np.unique(records.domain):
        rows = np.flatnonzero(records.domain == domain)
        for measure, values, known in _measures(files, pixels):
            mine = rows[known[rows]]
            if len(mine) > 1:
                z = robust_z(values[mine])
                low, high = NAMES[measure]
                for k in np.flatnonzero(np.abs(z) > LIMIT):
                    found.append(Outlier(int(mine[k]), measure, float(z[k]), high if z[k] > 0 else low))
    return sorted(found, key=lambda outlier: (-abs(outlier.z), outlier.row))


Measure = tuple[str, NDArray[np.floating], NDArray[np.bool_]]


def _measures(files: OriginalFiles | None, pixels: Pixels | None) -> Iterator[Measure]:
    """Yield each measure's name, its values (N,), and where they are known; sizes on a logarithmic scale."""
    if pixels is not None:
        everywhere = np.ones(len(pixels.brightness), bool)
        yield "brightness", pixels.brightness, everywhere
        yield "sharpness", np.log(np.maximum(pixels.sharpness, 1e-6)), everywhere
    if files is not None:
        area = files.width * files.height
        yield "original size", np.log(np.maximum(area, 1)), area > 0
        density = np.maximum(files.bytes, 1) / np.maximum(area, 1)
        yield "file size", np.log(density), (area > 0) & (files.bytes > 0)


@dataclass(frozen=True, eq=False)
class Inspection:
    """What was found in a prepared data set."""

    data: Prepared  # the data set
    read_images: bool  # whether the images were read, not only the tables
    classes: Classes  # the classes by which images are counted
    files: OriginalFiles | None  # the original files, None where unknown
    splits: list[SplitRow]  # counts by split
    cameras: list[CameraRow]  # counts by original size
    groups: list[CopyGroup]  # groups of copies
    outliers: list[Outlier]  # images that differ from the others
    leaks: list[Leak]  # pairs of splits that share patients


def inspect_data(data: Prepared, *, read_images: bool, progress: Progress = QUIET) -> Inspection:
    # The labels, where the records hold placeholders for grades.
    classes = Classes("grade", GRADES, data.records.grade) if data.graded else Classes("label", LABELS, data.label)
    files = original_files(data)
    pixels = duplicates.read_pixels(data, progress) if read_images else None
    digests, records = files.sha256 if files is not None else None, data.records
    groups = duplicate_groups(data, split_names(records), classes.of_row, digests, pixels, progress)
    return Inspection(
        data, read_images, classes, files, list(split_rows(records, classes)), list(camera_rows(records, files)), groups,
        outliers(records, files, pixels), list(leaks(records)),
    )  # fmt: skip


def findings(found: Inspection) -> Iterator[Finding]:
    """Yield what a user of the data set must know: copies, patients, bad files, outliers; see `templates/findings.j2`."""
    say = macros("findings.j2", package="retinabench.inspection")

    def finding(name: str, mood: str, *facts: object) -> Finding:
        lead, _, text = str(getattr(say, name)(*facts)).strip().partition("|")
        return Finding(lead, text, mood)

    groups, noun = found.groups, found.classes.noun
    sources = ["the images"] * found.read_images + ["the original files"] * (found.files is not None)
    if groups:
        kinds = Counter(group.kind for group in groups)
        yield finding("copies", "", len(groups), kinds)
        crossing = Counter(join_names(in_order(np.array(group.splits))) for group in groups if group.crosses)
        if crossing:
            yield finding("copies_across_splits", "bad", crossing.total(), crossing)
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
