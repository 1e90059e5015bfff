"""Messidor-2: images from four French hospitals with grades by three retina specialists in consensus.

| | |
|---|---|
| input | 1,748 colour images of 874 examinations, macula-centred, 45 degrees, PNG and JPG, 1,440 to 2,304 pixels wide |
| label | retinopathy grade 0-4, adjudicated by three retina specialists (`messidor_data.csv`) |
| population | people with diabetes at the hospitals of the Messidor programme and Brest, France |
| camera | Topcon TRC NW6 |
| splits | none published: all are test |
| patients | two eyes per examination, paired in `messidor-2.csv`; without that file every image is its own patient |
| known traps | a handful are ungradable, with an empty grade: left out and counted; the lists say .jpg where files are .JPG |
| licence | images: research and education, after registration; grades: see their Kaggle page |
| citation | Decencière et al. 2014, Image Anal Stereol 33:231; Abramoff et al. 2013, JAMA Ophthalmol 131:351; Krause et al. \
2018, Ophthalmology 125:1264 |
| how to get it | `STEPS` below |
"""

from __future__ import annotations

from pathlib import Path

from retinabench.core.errors import InputError
from retinabench.data.archives import Files, open_files
from retinabench.data.dataset import Records, make_records
from retinabench.data.image_dataset import ImageDataset
from retinabench.data.labels import (
    Row,
    Survey,
    grade_of,
    ids_of,
    needed,
    pair,
    placed,
    read_table,
    stem,
    word_of,
)

GRADES = ("image_id", "adjudicated_dr_grade", "adjudicated_gradable")
STEPS = (
    "(1) Register at https://www.adcis.net/en/third-party/messidor2 and download the images (IMAGES.zip.001 and following, "
    "all parts) and messidor-2.csv, which pairs the eyes. (2) Download messidor_data.csv from "
    "https://www.kaggle.com/datasets/google-brain/messidor2-dr-grades into the same folder; nothing need be unpacked. "
    "(3) retinabench prepare messidor --source THAT_FOLDER --out data/messidor"
)


def records(source: Path, *, survey: Survey | None = None, split: str | None = None) -> Records:
    """Read the adjudicated grades, pair the eyes, and find the images."""
    files = open_files(source)
    name = needed(
        files, "messidor_data.csv", "Download it from the Kaggle data set google-brain/messidor2-dr-grades."
    )
    where = files.where(name)
    rows = read_table(files, name, GRADES)
    images = ids_of(rows, "image_id", where)
    gradable = [_gradable(row, where) for row in rows]
    kept = [(image, row) for image, row, good in zip(images, rows, gradable, strict=True) if good]
    if survey is not None:
        survey.left_out += [(i, "ungradable") for i, good in zip(images, gradable, strict=True) if not good]
    if not kept:
        raise InputError("holds no gradable image", file=where)
    eyes = _eyes(files, survey)
    found = make_records(
        (image for image, _ in kept),
        (grade_of(row, GRADES[1], where) for _, row in kept),
        patient_id=(eyes.get(stem(image), (stem(image), ""))[0] for image, _ in kept),
        eye=(eyes.get(stem(image), ("", ""))[1] for image, _ in kept),
        split="test",
    )
    return placed(pair(found, files, survey), split)


def _gradable(row: Row, where: str) -> bool:
    """An empty grade is only good where the image is said to be ungradable."""
    return word_of(row, GRADES[2], where, ("0", "1")) == "1"


def _eyes(files: Files, survey: Survey | None) -> dict[str, tuple[str, str]]:
    """Map each image to its examination, named after both images, and its eye."""
    name = files.find("messidor-2.csv")
    if name is None:
        if survey is not None:
            survey.notes.append("no messidor-2.csv, so the two eyes of a patient count as two patients")
        return {}
    eyes: dict[str, tuple[str, str]] = {}
    for row in read_table(files, name, ("left", "right")):
        left, right = stem(row[1]["left"]), stem(row[1]["right"])
        eyes |= {left: (f"{left}+{right}", "left"), right: (f"{left}+{right}", "right")}
    return eyes


DATASET = ImageDataset(records, STEPS, counts={"test": (1_748,)})
