"""Counts of a data set: classes, splits, cameras, and patients with images in two splits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from retinabench.data.prepared.folder import Prepared
from retinabench.data.records import SPLITS, Records, referable
from retinabench.inspection.files import OriginalFiles

GRADES = ("no retinopathy", "mild", "moderate", "severe", "proliferative")
LABELS = ("not referable", "referable")


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes by which images are counted and shown.

    Attributes:
        noun: `grade` or `label`.
        names: The name of each class.
        of_row: The class of each record, (N,).
    """

    noun: str
    names: tuple[str, ...]
    of_row: NDArray[np.int8]


def classes_of(data: Prepared) -> Classes:
    """Return the grades, or the labels where the records hold placeholders for grades."""
    if data.graded:
        return Classes("grade", GRADES, data.records.grade)
    return Classes("label", LABELS, data.label)


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
    """Patients with images in two splits.

    Attributes:
        splits: The two splits.
        patients: Number of patients in both.
        images: Number of images of the second split that belong to a patient of the first.
        fellow_eyes: Number of patients whose other eye is in the other split.
    """

    splits: tuple[str, str]
    patients: int
    images: int
    fellow_eyes: int


def split_names(records: Records) -> NDArray[np.str_]:
    """Return each row's split (N,): train, validation or test, with `shifted` before it outside the domain."""
    return np.where(records.domain == "shifted", np.char.add("shifted ", records.split), records.split)


def in_order(names: NDArray[np.str_]) -> list[str]:
    """Return the splits that exist, in the order of a study."""
    present = set(names.tolist())
    return [name for prefix in ("", "shifted ") for split in SPLITS if (name := prefix + split) in present]


def split_rows(records: Records, classes: Classes) -> Iterator[SplitRow]:
    """Yield the counts of every split."""
    names = split_names(records)
    for name in in_order(names):
        mine = names == name
        counts = np.bincount(classes.of_row[mine], minlength=len(classes.names)).tolist()
        patients = len(np.unique(records.patient_id[mine]))
        yield SplitRow(
            name, int(mine.sum()), patients, tuple(counts), float(referable(records.grade[mine]).mean())
        )


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
    """Yield the pairs of splits that share patients."""
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
