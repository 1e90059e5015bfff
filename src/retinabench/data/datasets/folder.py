"""Your own images: any folder or zip of images and one CSV with a row per image.

| | |
|---|---|
| input | JPEG, PNG, TIFF, BMP or WebP, in any folders below --source, or in zips there |
| label | a column `grade`, 0-4 on the international scale; or 0/1 (not referable, referable), named with \
`--column label=NAME` |
| patients | a column `patient`; without it every image counts as a patient of its own, and intervals are too narrow where \
patients have two |
| splits | a column `split` (train, validation, test); without it `--split`, or else all are `train` and tasks hold out \
validation and test patients |
| more | columns `eye` (left, right, OD, OS, OI, L, R, and words of six languages) and `domain` (in_domain, shifted) |
| licence, camera, population | yours to document |

Columns called otherwise are mapped: `--column image=file --column grade=icdr --column patient=mrn`. The image column
holds file names, with or without folders and ending. An eye that cannot be read is unknown, and a column `domain` of which
nothing can be read is not used, unless `--column` names it; a note says so. With 0/1 labels no grade is known: tasks by grade refuse the
data, predictions carry no grades, and the records hold the stand-ins 0 and 2 so that `label` is right.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from retinabench.core.errors import InputError, nearest, printable
from retinabench.data.archives import Files, open_files
from retinabench.data.dataset import SPLITS, Records, make_records
from retinabench.data.image_dataset import ImageDataset
from retinabench.data.labels import (
    Row,
    Survey,
    check_distinct,
    grade_of,
    ids_of,
    pair,
    placed,
    read_table,
    refuse_typos,
    word_of,
)

ROLES = ("image", "grade", "label", "patient", "eye", "split", "domain")
DOMAINS = ("in_domain", "shifted")
SPLIT_NAMES = {
    "train": "train", "training": "train", "validation": "validation", "valid": "validation", "val": "validation",
    "dev": "validation", "test": "test", "testing": "test",
}  # fmt: skip
# English, Latin (OD, OS), Spanish (OD, OI), French (OD, OG), Portuguese (OD, OE), Italian and German.
EYE_NAMES = {
    "left": "left l le lefteye os oi og oe sinister sinistro sinistra izquierdo izquierda izq i ojoizquierdo gauche g "
    "oeilgauche esquerdo esquerda e links linkes",
    "right": "right r re righteye od dexter destro destra derecho derecha der d dcho ojoderecho droit droite oeildroit "
    "direito direita rechts rechtes",
    "": " na nan none null unknown ?",
}
EYES = {name: eye for eye, names in EYE_NAMES.items() for name in names.split(" ")}
SHOWN = 3  # values of a column that a note quotes
STAND_IN = {"0": 0, "1": 2}
STEPS = (
    "Put the images and one CSV (columns image, grade; better also patient and split) into a folder, then: "
    "retinabench prepare folder --source THAT_FOLDER --out data/ours"
)


def records(
    source: Path,
    *,
    survey: Survey | None = None,
    split: str | None = None,
    labels: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Records:
    columns = columns or {}
    for role in columns:
        if role not in ROLES:
            raise InputError(f"unknown role '{role}' of a column", hint=nearest(role, ROLES))
    if "grade" in columns and "label" in columns:
        raise InputError("--column names both grade and label", hint="Name the grade: the label follows.")
    files = open_files(source)
    tables, name = _table(files, labels)
    where = tables.where(name)
    truth = "label" if "label" in columns else "grade"
    needed = [columns.get(role, role) for role in ("image", truth)]
    needed += [columns[role] for role in ROLES[3:] if role in columns]
    try:
        rows = read_table(tables, name, needed)
    except InputError as error:
        if error.problem != "is missing":
            raise
        hint = f"{error.hint} Map it with --column ROLE=NAME; labels 0/1 with --column label=NAME."
        raise InputError(error.problem, file=where, column=error.column, hint=hint) from None
    if split is not None:  # the column is not read, so one that is spelt almost like it is not refused either
        columns = {"split": "split", **columns}
        rows = [(row, {k: v for k, v in cells.items() if k != columns["split"]}) for row, cells in rows]
    found = _records(rows, columns, truth, where, survey)
    return placed(pair(found, files, survey), split)


def _table(files: Files, labels: str | None) -> tuple[Files, str]:
    """Return the table of labels as files and a name: one below the folder of images, or anywhere on the disk."""
    if labels is not None:
        if labels in files:
            return files, labels
        elsewhere = Path(labels).expanduser()
        if not elsewhere.is_file():
            hint = "Give its path below that folder, or any path to it."
            raise InputError(f"holds no {labels}", file=files.root, hint=hint)
        return Files(elsewhere.parent, loose={elsewhere.name}), elsewhere.name
    tables = [name for name in files.names() if name.lower().endswith(".csv")]
    if len(tables) != 1:
        hint = "Name the one with the labels: --labels FILE."
        raise InputError(f"holds {len(tables)} CSV files", file=files.root, hint=hint)
    return files, tables[0]


def _records(rows: list[Row], columns: Mapping[str, str], truth: str, where: str, survey: Survey | None) -> Records:
    given = {role: columns.get(role, role) for role in ROLES}
    has = {role: given[role] in rows[0][1] for role in ROLES}
    notes = survey.notes if survey is not None else []
    images = ids_of(rows, given["image"], where)
    if truth == "grade":
        grades = [grade_of(row, given["grade"], where) for row in rows]
    else:
        grades = [STAND_IN[word_of(row, given["label"], where, list(STAND_IN))] for row in rows]
    patients = [row[1][given["patient"]] for row in rows] if has["patient"] else None
    if patients is not None and "" in patients:
        number = rows[patients.index("")][0]
        raise InputError("is empty", file=where, row=number, column=given["patient"], hint="Give each image one.")
    if patients is not None:
        check_distinct(rows, given["patient"], where)
    refuse_typos(rows[0][1], [role for role in ("patient", "split", "domain") if role not in columns], where)
    if patients is None:
        notes.append("no column 'patient', so every image counts as a patient of its own")
    if not has["split"]:
        notes.append("no column 'split'")
    eyes = None
    if has["eye"]:
        read = {cells[given["eye"]]: eye_of(cells[given["eye"]]) for _, cells in rows}
        eyes = [read[cells[given["eye"]]] or "" for _, cells in rows]
        if unread := [cell for cell, eye in read.items() if eye is None]:
            notes.append(f"column '{given['eye']}': {_quoted(unread)} names no eye, which is unknown there")
    split = _splits(rows, given["split"], where, notes) if has["split"] else None
    domain = _domains(rows, given["domain"], where, notes, asked="domain" in columns) if has["domain"] else None
    return make_records(
        images, grades, patient_id=patients, eye=eyes, split=split or "train", domain=domain or "in_domain"
    )


def _splits(rows: list[Row], column: str, where: str, notes: list[str]) -> list[str]:
    """Return the splits; usual names of them in any case are read, and a note says as what."""
    words = {number: SPLIT_NAMES.get(cells[column].lower(), cells[column]) for number, cells in rows}
    renamed = {cells[column]: words[number] for number, cells in rows if cells[column] != words[number]}
    if renamed:
        notes.append(f"column '{column}': {_quoted(list(renamed))} is read as {', '.join(renamed.values())}")
    return [word_of((number, {column: word}), column, where, SPLITS) for number, word in words.items()]


def _domains(rows: list[Row], column: str, where: str, notes: list[str], *, asked: bool) -> list[str] | None:
    """Return the domains; None, and a note, if the column holds none and was not asked for by name."""
    cells = list(dict.fromkeys(row[1][column] for row in rows))
    if not asked and not set(cells) & set(DOMAINS):
        notes.append(f"column '{column}' is not used: {_quoted(cells)} is none of {', '.join(DOMAINS)}")
        return None
    return [word_of(row, column, where, DOMAINS) for row in rows]


def _quoted(cells: Sequence[str]) -> str:
    more = f" (and {len(cells) - SHOWN:,} more)" if len(cells) > SHOWN else ""
    return ", ".join(f"'{printable(cell)}'" for cell in cells[:SHOWN]) + more


def eye_of(cell: str) -> str | None:
    """Return ``left``, ``right``, "" for an empty cell, None for one that names no eye, as a number does: 1 is the left one in some tables, the right one in others."""
    plain = unicodedata.normalize("NFKD", cell.casefold().replace("œ", "oe"))
    return EYES.get("".join(letter for letter in plain if letter.isalnum() or letter == "?"))


DATASET = ImageDataset(records, STEPS, options=("split", "labels", "columns"))
