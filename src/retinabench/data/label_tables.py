"""Data sets of image files and tables of labels, as `datasets/NAME.toml` defines them.

card = "Markdown, its first line the title"
steps = "How to get the files by hand, in one paragraph."
counts = { train = [...], test = [...] }      # published images by grade, or of all grades
label = "any retinopathy"                     # optional: what label 1 means, of a set without the five grades
remote = { url = "https://…", name = "…" }    # optional: a file that needs no login

[[labels]]                                    # one table of labels or several
file = "trainLabels.csv"
image = "image"                               # column of the image's name
grade = "level"                               # column of its grade, 0 to 4; or a table, eye in the name -> column
grades = { RG = 2, NRG = 0, "*" = 0 }         # optional: grade of a cell, and of all other cells
ungradable = ["5", ""]                        # optional: cells of images that are left out
header = ["image", "level"]                   # optional: the columns of a text file that has blanks between its cells
prefix = "train-"                             # optional: put before names that repeat in other tables
patient = "patient_id"                        # optional: columns of patient and eye, and which eye a cell is
eye = "exam_eye"
eyes = { 1 = "right", 2 = "left" }
gradable = "…"                                # optional: column of 0 and 1; images with 0 are left out
folder = "train"                              # optional: the folder that its images are in, where names repeat
pattern = '(?P<patient>…)_(?P<eye>…)'         # optional: patient and eye in the name, and `written`, how people write it
split = "train"                               # or `split_column` with `splits` (cell -> split),
rows = { test = 2929, validation = 733 }      # or the rows of each split, in their order
hint = "Where to get the table."

[eyes]                                        # optional: a table that pairs the images of an examination
file = "messidor-2.csv"
columns = ["left", "right"]
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from retinabench.core.errors import InputError
from retinabench.core.patterns import Pattern, groups_of_each
from retinabench.core.settings import Frozen
from retinabench.data.archives import Files, Remote, open_files
from retinabench.data.dataset import Records, join, make_records
from retinabench.data.image_dataset import ImageDataset
from retinabench.data.labels import Row, Survey, grade_of, ids_of, pair, placed, read_table, stem, word_of

FOLDER = Path(__file__).with_name("datasets")


class LabelTable(Frozen):
    """One table of labels, see above."""

    file: str
    image: str
    grade: str | dict[str, str]
    hint: str
    grades: dict[str, int] = Field(default_factory=dict)
    ungradable: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    prefix: str = ""
    patient: str = ""
    eye: str = ""
    eyes: dict[str, str] = Field(default_factory=dict)
    gradable: str = ""
    folder: str = ""
    pattern: Pattern = ""
    written: str = ""
    split: str = ""
    split_column: str = ""
    splits: dict[str, str] = Field(default_factory=dict)
    rows: dict[str, int] = Field(default_factory=dict)


class EyeTable(Frozen):
    """A table that pairs the two images of an examination."""

    file: str
    columns: tuple[str, str]


class Definition(Frozen):
    """A data set, see above."""

    card: str
    steps: str
    labels: tuple[LabelTable, ...]
    counts: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    label: str = ""
    remote: Remote | None = None
    eyes: EyeTable | None = None


def definition(name: str) -> Definition:
    return Definition(**tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8")))


def dataset(file: Path) -> ImageDataset:
    defined = definition(file.stem)
    remote = defined.remote
    return ImageDataset(
        partial(records, defined), defined.steps, remote=None if remote is None else lambda size: remote,
        counts=defined.counts, text=defined.card, label=defined.label,
    )  # fmt: skip


def records(defined: Definition, source: Path, *, survey: Survey | None = None, split: str | None = None) -> Records:
    files = open_files(source)
    rows, folders = _labels(defined, files, survey, split)
    if defined.eyes is not None:
        rows = _paired(rows, defined.eyes, files, survey)
    return placed(pair(rows, files, survey, folders if folders.any() else None), split)


def labels(defined: Definition, files: Files, survey: Survey | None = None, split: str | None = None) -> Records:
    """Read the tables of labels alone: all rows, whether or not their images exist."""
    return placed(_labels(defined, files, survey, split)[0], split)


def _labels(
    defined: Definition, files: Files, survey: Survey | None, split: str | None
) -> tuple[Records, NDArray[np.str_]]:
    """Return the rows of all tables (N,), and the folder that each image is expected in."""
    places = [(table, files.find(table.file)) for table in defined.labels]
    found = [(table, path) for table, path in places if path is not None]
    absent = [table for table, path in places if path is None]
    if absent and not (found and survey is not None and survey.skips):
        goes_on = " Or go on without its images: add --on-bad skip." if found else ""
        raise InputError(f"holds no {absent[0].file}", file=files.root, hint=f"{absent[0].hint}{goes_on}")
    if survey is not None:
        survey.notes += [f"no {table.file}, so its images are left out" for table in absent]
    parts: list[Records] = []
    known: dict[str, str] = {}
    for table, path in found:
        part = _part(table, files, path, survey, split)
        if both := known.keys() & set(part.image_id.tolist()):
            hint = "Use the files as downloaded."
            raise InputError(f"'{min(both)}' is in {known[min(both)]} too", file=files.where(path), hint=hint)
        known |= dict.fromkeys(part.image_id.tolist(), table.file)
        parts.append(part)
    folders = [np.full(len(part), table.folder) for part, (table, _) in zip(parts, found, strict=True)]
    return join(parts), np.concatenate(folders)


def _part(table: LabelTable, files: Files, path: str, survey: Survey | None, split: str | None) -> Records:
    where = files.where(path)
    of_grades = [table.grade] if isinstance(table.grade, str) else list(table.grade.values())
    named = (table.image, *of_grades, table.split_column, table.gradable, table.patient, table.eye)
    rows = read_table(files, path, [name for name in named if name], table.header)
    if table.rows and len(rows) != (published := sum(table.rows.values())) and split is None:
        problem = (
            f"has {len(rows):,} rows, not {published:,}: the published split goes by row number and cannot be made"
        )
        hint = f"Use {table.file} as downloaded, or put all rows into one split, such as --split test."
        raise InputError(problem, file=where, hint=hint)
    images = ids_of(rows, table.image, where)
    if table.gradable or table.ungradable:  # an empty grade is only good where the image is said to be ungradable
        cells = [row[1][of_grades[0]] for row in rows]
        good = [cell.removesuffix(".0") not in table.ungradable for cell in cells]
        if table.gradable:
            good = [word_of(row, table.gradable, where, ("0", "1")) == "1" for row in rows]
        if survey is not None:
            survey.left_out += [(i, "ungradable") for i, kept in zip(images, good, strict=True) if not kept]
        rows = [row for row, kept in zip(rows, good, strict=True) if kept]
        images = [image for image, kept in zip(images, good, strict=True) if kept]
        if not rows:
            raise InputError("holds no gradable image", file=where)
    names = groups_of_each(f"^(?:{table.pattern})$", images) if table.pattern else []
    if None in names:
        k = names.index(None)
        problem = f"'{images[k]}' is not {table.written}"
        raise InputError(problem, file=where, row=rows[k][0], column=table.image)
    splits: list[str] | str = table.split
    if table.split_column:
        splits = [table.splits[word_of(row, table.split_column, where, list(table.splits))] for row in rows]
    elif table.rows:
        splits = [name for name, count in table.rows.items() for _ in range(count)]
        splits = (splits + ["validation"] * len(rows))[: len(rows)]  # of another number all get one split
    patients = [name["patient"] for name in names if name is not None] or None
    if table.patient:
        patients = [row[1][table.patient] for row in rows]
    cells = [name["eye"] for name in names if name is not None]
    if table.eye:
        cells = [word_of(row, table.eye, where, list(table.eyes)) for row in rows]
    return make_records(
        [f"{table.prefix}{image}" for image in images],
        [_grade(table, row, cells[k] if cells else "", where) for k, row in enumerate(rows)],
        source=images,
        patient_id=patients,
        eye=[table.eyes.get(cell, cell) for cell in cells] or None,
        split=splits,
    )


def _grade(table: LabelTable, row: Row, eye: str, where: str) -> int:
    column = table.grade if isinstance(table.grade, str) else table.grade[eye]
    if not table.grades:
        return grade_of(row, column, where)
    if "*" in table.grades:
        return table.grades.get(row[1][column], table.grades["*"])
    return table.grades[word_of(row, column, where, list(table.grades))]


def _paired(rows: Records, table: EyeTable, files: Files, survey: Survey | None) -> Records:
    """Return the records with the eyes of a table, and its examinations, named after both images, as patients; an image that it lacks is its own patient."""
    path = files.find(table.file)
    if path is None and survey is not None:
        survey.notes.append(f"no {table.file}, so the two eyes of a patient count as two patients")
    eyes: dict[str, tuple[str, str]] = {}
    for _, cells in read_table(files, path, table.columns) if path is not None else ():
        left, right = (stem(cells[column]) for column in table.columns)
        eyes |= {left: (f"{left}+{right}", "left"), right: (f"{left}+{right}", "right")}
    of = [eyes.get(stem(image), (stem(image), "")) for image in rows.image_id.tolist()]
    patients, sides = (np.array(column) for column in zip(*of, strict=True))
    return replace(rows, patient_id=patients, eye=sides)
