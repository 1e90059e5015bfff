"""IDRiD disease grading: 516 images from Nanded, India.

| | |
|---|---|
| input | 516 colour images, 4288 x 2848 JPEG, 50 degrees around the macula |
| label | retinopathy grade 0-4 on the international scale (macular oedema risk is not used here) |
| population | one eye clinic in Nanded, India |
| camera | Kowa VX-10 alpha |
| splits | train 413 (134/20/136/74/49 by grade), test 103 (34/5/32/19/13) |
| patients | not published; images with equal bytes (six pairs) share one patient id here |
| known traps | three of the six pairs carry different grades; one pair crosses the official split |
| licence | CC BY 4.0 |
| citation | Porwal et al. 2018, "Indian Diabetic Retinopathy Image Dataset", doi 10.21227/H25W98 |
| how to get it | `STEPS` below |

Two layouts are read: the official archive (`1. Original Images/a. Training Set/IDRiD_001.jpg …`,
`2. Groundtruths/a. IDRiD_Disease Grading_Training Labels.csv`), and one `labels.csv` (file, name, split, grade,
optionally sha256_original) beside `images/`. Either may be zipped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np

from retinabench.core.errors import InputError
from retinabench.data.archives import Files, open_files
from retinabench.data.dataset import ArrayDataset, Records, concatenate, make_records
from retinabench.data.image_dataset import ImageDataset
from retinabench.data.labels import Survey, grade_of, ids_of, pair, placed, read_table, word_of
from retinabench.data.prepared import open_prepared
from retinabench.data.preprocessing.graham import BLOCK, SIZE, extremes

OFFICIAL = {
    "train": ("a. Training Set", "a. IDRiD_Disease Grading_Training Labels.csv"),
    "test": ("b. Testing Set", "b. IDRiD_Disease Grading_Testing Labels.csv"),
}
STEPS = (
    "(1) Open https://ieee-dataport.org/open-access/indian-diabetic-retinopathy-image-dataset-idrid (free login). "
    "(2) Download 'B. Disease Grading.zip'; it need not be unpacked. (3) retinabench prepare idrid --source "
    "THE_ZIP_OR_FOLDER --out data/idrid"
)
POOLED_HINT = "Name by --data what `retinabench prepare idrid --source … --size 224 --out …` made."
Row = tuple[str, str, int, str, str]  # name, split, grade, file, SHA-256 of the original file where that is stated


def records(source: Path, *, survey: Survey | None = None, split: str | None = None) -> Records:
    files = open_files(source)
    rows = _compact(files) if "labels.csv" in files else _official(files)
    name, of_split, grade, path, sums = zip(*rows, strict=True)
    found = pair(make_records(name, grade, source=path, split=of_split), files, survey)
    published = dict(zip(name, sums, strict=True))
    # Images with equal bytes are of one patient, also where the files were compressed again. The patient is named after the
    # first of them, so that the name is kept when a damaged file is replaced.
    first: dict[str, str] = {}
    patients = [
        first.setdefault(published.get(image) or _sha256(files, file) or image, image)
        for image, file in zip(found.image_id.tolist(), found.source.tolist(), strict=True)
    ]
    return placed(replace(found, patient_id=np.array(patients)), split)


def read_pooled(folder: Path | None) -> ArrayDataset:
    """Read a prepared folder of IDRiD at 224 px, pooled to 28 px (`graham.extremes`), with grades as targets and the official splits ``train`` and ``test`` (group ``in_domain``)."""
    if folder is None:
        raise InputError("the data of 'idrid' do not come with the package", hint=POOLED_HINT)
    prepared = open_prepared(folder)
    side = BLOCK * SIZE
    if prepared.name != "idrid" or prepared.size != side:
        raise InputError(f"is not IDRiD at {side} px", file=folder, hint=POOLED_HINT)
    records, parts = prepared.records, {}
    for split, group in (("train", "train"), ("test", "in_domain")):
        rows = np.flatnonzero(records.split == split)
        if not len(rows):
            raise InputError(f"holds no images of the split '{split}'", file=folder, hint=POOLED_HINT)
        rows = rows[np.argsort(records.image_id[rows])]
        parts[split] = ArrayDataset(
            np.stack([extremes(prepared.images([row])[0]) for row in rows.tolist()]),
            records.grade[rows].astype(np.int64),
            np.full(len(rows), group),
            image_id=records.image_id[rows],
            patient_id=records.patient_id[rows],
        )
    return concatenate(parts)


def _compact(files: Files) -> Iterator[Row]:
    where = files.where("labels.csv")
    rows = read_table(files, "labels.csv", ("file", "name", "split", "grade"))
    for row, name in zip(rows, ids_of(rows, "name", where), strict=True):
        cells, split = row[1], word_of(row, "split", where, list(OFFICIAL))
        grade, path = grade_of(row, "grade", where), f"images/{cells['file']}"
        yield name, split, grade, path, cells.get("sha256_original", "")


def _official(files: Files) -> Iterator[Row]:
    for split, (folder, labels) in OFFICIAL.items():
        table = files.find(labels)
        if table is None:
            hint = "Point --source at the 'B. Disease Grading' archive."
            raise InputError(f"holds neither labels.csv nor '2. Groundtruths/{labels}'", file=files.root, hint=hint)
        where = files.where(table)
        root = PurePosixPath(table).parent.parent
        rows = read_table(files, table, ("Image name", "Retinopathy grade"))
        for row, image in zip(rows, ids_of(rows, "Image name", where), strict=True):
            # Both parts number their images from 1; the split makes the names unique.
            path = root / "1. Original Images" / folder / f"{image}.jpg"
            yield f"{image}_{split}", split, grade_of(row, "Retinopathy grade", where), str(path), ""


def _sha256(files: Files, name: str) -> str:
    """Return the SHA-256 of a file, or '' if it cannot be read, which `prepare` will report."""
    try:
        return hashlib.sha256(files.read(name)).hexdigest()
    except InputError:
        return ""


DATASET = ImageDataset(records, STEPS, counts={"train": (134, 20, 136, 74, 49), "test": (34, 5, 32, 19, 13)})
