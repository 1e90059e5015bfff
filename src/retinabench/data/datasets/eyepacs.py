"""EyePACS: the Kaggle Diabetic Retinopathy Detection competition of 2015.

| | |
|---|---|
| input | 88,702 colour images, JPEG, a few hundred to 5,184 pixels wide; two per patient, left and right |
| label | retinopathy grade 0-4, by one grader; noisy |
| population | people with diabetes, screened at primary-care sites with the EyePACS platform, USA |
| camera | many models; pupils dilated or not; exposure and focus vary |
| splits | Kaggle train 35,126 (25,810/2,443/5,292/873/708 by grade); Public 10,906 (8,130/720/1,579/237/240) is \
validation; Private 42,670 (31,403/3,042/6,282/977/966) is test |
| patients | 44,351, in the file name; no patient is in two splits |
| known traps | includes ungradable images, which have grades; `train.zip.005` is easily overlooked |
| licence | rules of the competition: research, no redistribution |
| citation | Kaggle and EyePACS 2015; Cuadros and Bresnick 2009, J Diabetes Sci Technol 3:509 |
| how to get it | `STEPS` below |

Read as downloaded: `trainLabels.csv` (image, level), `retinopathy_solution.csv` (image, level, Usage), images
`<patient>_<left|right>.jpeg` in `train/` and `test/`, each unpacked, zipped, or zipped in parts. A copy of one part, with
its label file, is read with `--on-bad skip`.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from retinabench.core.errors import InputError
from retinabench.data.archives import Files, Remote, open_files
from retinabench.data.dataset import Records, join, make_records
from retinabench.data.image_dataset import ImageDataset
from retinabench.data.labels import Row, Survey, grade_of, ids_of, pair, placed, read_table, word_of

SOLUTION = Remote(
    "https://storage.googleapis.com/kaggle-forum-message-attachments/90528/2877/retinopathy_solution.csv",
    "retinopathy_solution.csv",
)
STEPS = (
    "(1) Accept the rules at https://www.kaggle.com/c/diabetic-retinopathy-detection/rules. (2) Download trainLabels.csv.zip, "
    "train.zip.001 to .005 and test.zip.001 to .007 from its data page into one folder (about 85 GB); nothing need be unpacked. "
    "(3) retinabench prepare eyepacs --download --source THAT_FOLDER --out data/eyepacs fetches the labels of the "
    "test images (retinopathy_solution.csv) and prepares."
)
TRAIN = "trainLabels.csv"
COLUMNS = {TRAIN: ("image", "level"), SOLUTION.name: ("image", "level", "Usage")}
HOW_TO_GET = {
    TRAIN: "Download trainLabels.csv.zip.",
    SOLUTION.name: "Add --download: it is fetched from its public address.",
}
USAGE = {"Public": "validation", "Private": "test"}
NAME = re.compile(r"(?P<patient>\d+)_(?P<eye>left|right)")


def records(source: Path, *, survey: Survey | None = None, split: str | None = None) -> Records:
    """Read both label files and find the images."""
    files = open_files(source)
    rows = labels(files, survey)
    folders = np.where(rows.split == "train", "train", "test")
    return placed(pair(rows, files, survey, folders), split)


def labels(files: Files, survey: Survey | None = None) -> Records:
    """Read the label files alone: all 88,702 rows, whether or not their images exist."""
    names = {name: files.find(name) for name in (TRAIN, SOLUTION.name)}
    found = {name: path for name, path in names.items() if path is not None}
    absent = [name for name in names if name not in found]
    if absent and not (found and survey is not None and survey.skips):
        goes_on = " Or go on without its images: add --on-bad skip." if found else ""
        raise InputError(f"holds no {absent[0]}", file=files.root, hint=f"{HOW_TO_GET[absent[0]]}{goes_on}")
    if survey is not None:
        survey.notes += [f"no {name}, so its images are left out" for name in absent]
    parts = [
        _part(read_table(files, path, COLUMNS[name]), files.where(path), usage=name == SOLUTION.name)
        for name, path in found.items()
    ]
    if len(parts) == 2 and (both := set(parts[0].image_id.tolist()) & set(parts[1].image_id.tolist())):
        raise InputError(
            f"'{min(both)}' is in {TRAIN} too",
            file=files.where(found[SOLUTION.name]),
            hint="Use the files as downloaded.",
        )
    return join(parts)


def _part(rows: list[Row], where: str, usage: bool) -> Records:
    images = ids_of(rows, "image", where)
    names = []
    for (number, _), image in zip(rows, images, strict=True):
        name = NAME.fullmatch(image)
        if name is None:
            raise InputError(
                f"'{image}' is not <patient>_<left|right>", file=where, row=number, column="image"
            )
        names.append(name)
    return make_records(
        images,
        (grade_of(row, "level", where) for row in rows),
        patient_id=(name["patient"] for name in names),
        eye=(name["eye"] for name in names),
        split=(USAGE[word_of(row, "Usage", where, list(USAGE))] for row in rows) if usage else "train",
    )


DATASET = ImageDataset(
    records,
    STEPS,
    remote=lambda size: SOLUTION,
    counts={
        "train": (25_810, 2_443, 5_292, 873, 708),
        "validation": (8_130, 720, 1_579, 237, 240),
        "test": (31_403, 3_042, 6_282, 977, 966),
    },
)
