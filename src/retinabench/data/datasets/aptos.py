"""APTOS 2019 Blindness Detection: the shifted population of Country Shift.

| | |
|---|---|
| input | 3,662 labelled colour images, PNG, 474 to 4,288 pixels wide |
| label | retinopathy grade 0-4, by one grader: 1,805/370/999/193/295 |
| population | rural screening camps of the Aravind Eye Hospital, India |
| camera | a variety, in several clinics; which one took an image is not published |
| splits | by row of `train.csv`, neither shuffled nor stratified: rows 1-2,929 are test, rows 2,930-3,662 validation |
| patients | not published: every image counts as a patient of its own |
| known traps | byte-equal images with conflicting grades; image size alone predicts the grade in part |
| licence | rules of the competition: research, no redistribution |
| citation | Asia Pacific Tele-Ophthalmology Society 2019, Kaggle |
| how to get it | `STEPS` below |

Read as downloaded: `train.csv` (id_code, diagnosis), `train_images/<id_code>.png`, unpacked or zipped. The 1,928
images of `test_images` have no public label and are left out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from retinabench.core.errors import InputError
from retinabench.data.archives import Files, open_files
from retinabench.data.dataset import Records, make_records
from retinabench.data.image_dataset import ImageDataset
from retinabench.data.labels import Survey, grade_of, ids_of, needed, pair, placed, read_table

ROWS, TEST = 3662, 2929
STEPS = (
    "(1) Accept the rules at https://www.kaggle.com/c/aptos2019-blindness-detection/rules. (2) Download the whole data set "
    "from its data page (10 GB, one zip); it need not be unpacked. (3) retinabench prepare aptos --source "
    "THE_FOLDER_OR_ZIP --out data/aptos"
)


def records(source: Path, *, survey: Survey | None = None, split: str | None = None) -> Records:
    """Read `train.csv` and find the images."""
    files = open_files(source)
    rows = labels(files, split)
    return pair(rows, files, survey, np.full(len(rows), "train_images"))


def labels(files: Files, split: str | None = None) -> Records:
    """Read the label file alone."""
    name = needed(files, "train.csv", "Point --source at the data set as downloaded.")
    where = files.where(name)
    rows = read_table(files, name, ("id_code", "diagnosis"))
    if len(rows) != ROWS and split is None:
        raise InputError(
            f"has {len(rows):,} rows, not {ROWS:,}: the published split goes by row number and cannot be made",
            file=where,
            hint="Use train.csv as downloaded, or put all rows into one split, such as --split test.",
        )
    found = make_records(
        ids_of(rows, "id_code", where),
        (grade_of(row, "diagnosis", where) for row in rows),
        split=("test" if k < TEST else "validation" for k in range(len(rows))),
    )
    return placed(found, split)


DATASET = ImageDataset(records, STEPS, counts={"validation": (ROWS - TEST,), "test": (TEST,)})
