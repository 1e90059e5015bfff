"""Data sets of image files and tables of labels, as `datasets/NAME.toml` defines them.

card = "Markdown, its first line the title"
steps = "How to get the files by hand, in one paragraph."
counts = { train = [...], test = [...] }      # published images by grade, or of all grades
remote = { url = "https://…", name = "…" }    # optional: a file that needs no login

[[labels]]                                    # one table of labels or several
file = "trainLabels.csv"
image = "image"                               # column of the image's name
grade = "level"                               # column of its grade, 0 to 4
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
from retinabench.data.labels import Survey, grade_of, ids_of, pair, placed, read_table, stem, word_of

FOLDER = Path(__file__).with_name("datasets")


class LabelTable(Frozen):
    """One table of labels, see above."""

    file: str
    image: str
    grade: str
    hint: str
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
    counts: dict[str, tuple[int, ...]]
    remote: Remote | None = None
    eyes: EyeTable | None = None


def definition(name: str) -> Definition:
    return Definition(**tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8")))


def dataset(file: Path) -> ImageDataset:
    defined = definition(file.stem)
    remote = defined.remote
    return ImageDataset(
        partial(records, defined),
        defined.steps,
        remote=None if remote is None else lambda size: remote,
        counts=defined.counts,
        text=defined.card,
    )


def records(defined: Definition, source: Path, *, survey: Survey | None = None, split: str | None = None) -> Records:
    """Read the tables of labels, pair the eyes, and find the images."""
    files = open_files(source)
    rows, folders = _labels(defined, files, survey, split)
    if defined.eyes is not None:
        rows = _paired(rows, _eyes(defined.eyes, files, survey))
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
            raise InputError(
                f"'{min(both)}' is in {known[min(both)]} too",
                file=files.where(path),
                hint="Use the files as downloaded.",
            )
        known |= dict.fromkeys(part.image_id.tolist(), table.file)
        parts.append(part)
    folders = [np.full(len(part), table.folder) for part, (table, _) in zip(parts, found, strict=True)]
    return join(parts), np.concatenate(folders)


def _part(table: LabelTable, files: Files, path: str, survey: Survey | None, split: str | None) -> Records:
    where = files.where(path)
    columns = [name for name in (table.image, table.grade, table.split_column, table.gradable) if name]
    rows = read_table(files, path, columns)
    if table.rows and len(rows) != sum(table.rows.values()) and split is None:
        raise InputError(
            f"has {len(rows):,} rows, not {sum(table.rows.values()):,}: the published split goes by row number and "
            "cannot be made",
            file=where,
            hint=f"Use {table.file} as downloaded, or put all rows into one split, such as --split test.",
        )
    images = ids_of(rows, table.image, where)
    if table.gradable:  # an empty grade is only good where the image is said to be ungradable
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
    return make_records(
        images,
        (grade_of(row, table.grade, where) for row in rows),
        patient_id=[name["patient"] for name in names if name is not None] or None,
        eye=[name["eye"] for name in names if name is not None] or None,
        split=splits,
    )


def _eyes(table: EyeTable, files: Files, survey: Survey | None) -> dict[str, tuple[str, str]]:
    """Map each image to its examination, named after both images, and its eye."""
    path = files.find(table.file)
    if path is None:
        if survey is not None:
            survey.notes.append(f"no {table.file}, so the two eyes of a patient count as two patients")
        return {}
    eyes: dict[str, tuple[str, str]] = {}
    for _, cells in read_table(files, path, table.columns):
        left, right = (stem(cells[column]) for column in table.columns)
        eyes |= {left: (f"{left}+{right}", "left"), right: (f"{left}+{right}", "right")}
    return eyes


def _paired(rows: Records, eyes: dict[str, tuple[str, str]]) -> Records:
    """Return the records with the patients and eyes of a table; an image that it lacks is its own patient."""
    of = [eyes.get(stem(image), (stem(image), "")) for image in rows.image_id.tolist()]
    patients, sides = (np.array(column) for column in zip(*of, strict=True))
    return replace(rows, patient_id=patients, eye=sides)
