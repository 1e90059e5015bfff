"""IDRiD disease grading: 516 photographs from Nanded, India.

| | |
|---|---|
| input | 516 colour photographs, 4288 x 2848 JPEG, Kowa VX-10 alpha, 50 degrees around the macula |
| label | retinopathy grade 0-4 on the international scale (macular oedema risk is not used here) |
| population | one eye clinic, one camera; 413 train (134/20/136/74/49 by grade), 103 test (34/5/32/19/13) |
| domain | all `in_domain`: one camera, no shift |
| patients | not published; photographs with equal bytes (six pairs) share one patient id here |
| known traps | three of the six pairs carry different grades; one pair crosses the official split |
| licence | CC BY 4.0 |
| source | Porwal et al. 2018, "Indian Diabetic Retinopathy Image Dataset", doi 10.21227/H25W98 |
| how to get it | the "B. Disease Grading" archive of the IEEE DataPort page, unpacked |

Two layouts are read: the official archive (`1. Original Images/a. Training Set/IDRiD_001.jpg …`,
`2. Groundtruths/a. IDRiD_Disease Grading_Training Labels.csv`), and one `labels.csv` (file, name, split, grade,
optionally sha256_original) beside `images/`.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from retinabench.data.records import Records
from retinabench.errors import InputError

OFFICIAL = {
    "train": ("a. Training Set", "a. IDRiD_Disease Grading_Training Labels.csv"),
    "test": ("b. Testing Set", "b. IDRiD_Disease Grading_Testing Labels.csv"),
}


def records(source: Path) -> Records:
    """Read the official 413 / 103 split below `source`; pictures are named relative to it.

    Raises `InputError` naming the label file and row where a label is bad or its photograph missing.
    """
    if not source.is_dir():
        raise InputError(
            "is not a folder", file=source, cure="Point --source at the unpacked IDRiD grading archive."
        )
    rows = list(_compact(source) if (source / "labels.csv").is_file() else _official(source))
    if not rows:
        raise InputError("holds no labels", file=source)
    name, split, grade, path, patient = (np.array(column) for column in zip(*rows, strict=True))
    return Records(
        image_id=name,
        patient_id=patient,
        eye=np.full(len(name), ""),
        grade=grade.astype(np.int8),
        domain=np.full(len(name), "in_domain"),
        split=split,
        source=path,
        p_referable=np.full(len(name), np.nan),
    )


Row = tuple[str, str, int, str, str]


def _compact(source: Path) -> Iterator[Row]:
    file = source / "labels.csv"
    for number, row in _rows(file, ("file", "name", "split", "grade")):
        if row["split"] not in OFFICIAL:
            raise InputError(f"is '{row['split']}', not train or test", file=file, row=number, column="split")
        path = f"images/{row['file']}"
        _exists(source / path, file, number)
        digest = row.get("sha256_original") or _sha256(source / path)
        yield row["name"], row["split"], _grade(file, number, row["grade"]), path, f"bytes-{digest[:16]}"


def _official(source: Path) -> Iterator[Row]:
    root = next((p.parent for p in sorted(source.rglob("2. Groundtruths")) if p.is_dir()), None)
    if root is None:
        raise InputError(
            "holds neither labels.csv nor '2. Groundtruths'",
            file=source,
            cure="Point --source at the unpacked 'B. Disease Grading' archive.",
        )
    for split, (folder, labels) in OFFICIAL.items():
        file = root / "2. Groundtruths" / labels
        for number, row in _rows(file, ("Image name", "Retinopathy grade")):
            picture = root / "1. Original Images" / folder / f"{row['Image name'].strip()}.jpg"
            _exists(picture, file, number)
            # The two parts number their pictures from 1 alike: the split keeps the names apart.
            name = f"{row['Image name'].strip()}_{split}"
            grade = _grade(file, number, row["Retinopathy grade"])
            yield name, split, grade, str(picture.relative_to(source)), f"bytes-{_sha256(picture)[:16]}"


def _rows(file: Path, needed: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with open(file, newline="", encoding="utf-8-sig") as handle:
            reader = csv.DictReader(handle)
            for column in needed:
                if column not in (reader.fieldnames or ()):
                    raise InputError(
                        "is missing", file=file, column=column, cure="Use the CSV as downloaded."
                    )
            for number, row in enumerate(reader, start=1):
                if row[needed[0]]:  # the official CSVs end in empty rows
                    yield number, row
    except FileNotFoundError:
        raise InputError("does not exist", file=file, cure="Unpack the whole archive.") from None


def _grade(file: Path, row: int, text: str) -> int:
    if text.strip() not in {"0", "1", "2", "3", "4"}:
        raise InputError(f"is '{text}', not one of 0, 1, 2, 3, 4", file=file, row=row, column="grade")
    return int(text)


def _exists(picture: Path, file: Path, row: int) -> None:
    if not picture.is_file():
        raise InputError(
            f"its photograph {picture} is missing", file=file, row=row, cure="Unpack the whole archive."
        )


def _sha256(path: Path) -> str:
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
