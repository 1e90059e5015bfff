"""IDRiD lesions: images with the outlines of their lesions, and images without retinopathy.

| | |
|---|---|
| input | colour images, Kowa VX-10 alpha, 50 degrees around the macula |
| concepts | microaneurysm (MA), haemorrhage (HE), hard exudate (EX), soft exudate (SE) |
| truth | a mask per lesion kind, drawn by experts; a kind without a mask is absent |
| known traps | MA, HE and EX are in nearly every image with retinopathy, so that knowing whether there is retinopathy answers all of them; SE is in half of these |
| patients | not published: every image counts as a patient of its own |
| licence | CC BY 4.0 |
| source | Porwal et al. 2018, "Indian Diabetic Retinopathy Image Dataset", doi 10.21227/H25W98 |
| how to get it | the archives "A. Segmentation" and "B. Disease Grading" of the IEEE DataPort page, unpacked side by side |

Two layouts are read:

- `concepts.csv` (file, then MA, HE, EX, SE as 0 or 1) beside `images/`, which holds the images and, as
  `NAME_MA.jpg` and so on, their lesions on black. With 54 images with lesions and 89 without retinopathy these
  are the 143 images of the visual Turing test (Fountoukidou and Sznitman 2019).
- the official archive: `A. Segmentation/1. Original Images/a. Training Set/IDRiD_01.jpg …` and
  `2. All Segmentation Groundtruths/a. Training Set/1. Microaneurysms/IDRiD_01_MA.tif …`. It holds 81 images, all
  with lesions; the images of grade 0 of the grading archive, where that lies below the same folder, join them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retinabench.core.errors import InputError
from retinabench.data.archives import Files
from retinabench.data.dataset import ConceptImages
from retinabench.data.datasets import idrid
from retinabench.data.labels import read_table, word_of
from retinabench.data.preprocessing.graham import square_box, square_image, square_mask
from retinabench.data.preprocessing.preprocess import decode

# Abbreviation in the file names -> concept, folder of the official archive.
KINDS = {
    "MA": ("microaneurysm", "1. Microaneurysms"),
    "HE": ("haemorrhage", "2. Haemorrhages"),
    "EX": ("hard_exudate", "3. Hard Exudates"),
    "SE": ("soft_exudate", "4. Soft Exudates"),
}

MASK_LEVEL = 40
"""A pixel belongs to a lesion where its brightest channel is above this: JPEG leaves traces around a lesion on black."""


@dataclass(frozen=True)
class _Sample:
    """An image, whether each concept is present in it, and the masks of those that have one."""

    name: str
    file: Path
    present: tuple[bool, ...]
    masks: dict[str, Path]


def read(source: Path) -> ConceptImages:
    if not source.is_dir():
        raise InputError("is not a folder", file=source, hint="Point --source at the unpacked IDRiD archive.")
    found = list(_compact(source) if (source / "concepts.csv").is_file() else _official(source))
    if not found:
        raise InputError("holds no images", file=source, hint="Unpack the whole archive.")
    names = np.array([image.name for image in found])
    return ConceptImages(
        sample_id=names,
        concepts=tuple(concept for concept, _ in KINDS.values()),
        truth=np.array([image.present for image in found], np.int8),
        patient_id=names,
        image=lambda row, size: square_image(_open(found[row].file), size),
        masks=lambda row: _masks(found[row]),
    )


def _compact(source: Path) -> Iterator[_Sample]:
    files, table = Files(source), "concepts.csv"
    where = files.where(table)
    for row in read_table(files, table, ("file", *KINDS)):
        number, cells = row
        image = source / "images" / cells["file"]
        if not image.is_file():
            raise InputError(f"its image {image} is missing", file=where, row=number)
        present = [kind for kind in KINDS if word_of(row, kind, where, ("0", "1")) == "1"]
        masks = {kind: image.with_name(f"{image.stem}_{kind}.jpg") for kind in present}
        for kind, mask in masks.items():
            if not mask.is_file():
                raise InputError(f"its mask {mask} is missing", file=where, row=number, column=kind)
        yield _Sample(image.stem, image, tuple(kind in masks for kind in KINDS), masks)


def _official(source: Path) -> Iterator[_Sample]:
    truths = next(iter(sorted(source.rglob("2. All Segmentation Groundtruths"))), None)
    if truths is None:
        hint = "Point --source at the unpacked 'A. Segmentation' archive."
        raise InputError("holds neither concepts.csv nor '2. All Segmentation Groundtruths'", file=source, hint=hint)
    for part in ("a. Training Set", "b. Testing Set"):
        for file in sorted((truths.parent / "1. Original Images" / part).glob("*.jpg")):
            places = {k: truths / part / folder / f"{file.stem}_{k}.tif" for k, (_, folder) in KINDS.items()}
            masks = {kind: place for kind, place in places.items() if place.is_file()}
            yield _Sample(file.stem, file, tuple(k in masks for k in KINDS), masks)
    if not any(source.rglob("2. Groundtruths")):
        return
    # The images of grade 0 of the grading archive, except those with an identical image of another grade.
    graded = idrid.records(source)
    doubtful = set(graded.patient_id[graded.grade > 0])  # equal bytes share a patient id there
    for row in np.flatnonzero(graded.grade == 0):
        if graded.patient_id[row] not in doubtful:
            name, file = str(graded.image_id[row]), source / str(graded.source[row])
            yield _Sample(f"{name}_grade_0", file, (False,) * len(KINDS), {})


def _masks(image: _Sample) -> NDArray[np.bool_]:
    rgb = _open(image.file)
    box = square_box(rgb)
    side = box[2] - box[0]
    masks = np.zeros((len(KINDS), side, side), np.bool_)
    for layer, kind in zip(masks, KINDS, strict=True):
        if kind in image.masks:
            file = image.masks[kind]
            drawn = _open(file)
            if drawn.size != rgb.size:
                sizes = f"{drawn.width} x {drawn.height} pixels for an image of {rgb.width} x {rgb.height}"
                raise InputError(f"is a mask of {sizes}", file=file)
            layer[:] = square_mask(np.asarray(drawn).max(axis=2) > MASK_LEVEL, box)
            if not layer.any():
                raise InputError("shows no lesion", file=file, hint="Delete it, or set its concept to 0.")
    return masks


def _open(file: Path) -> Image.Image:
    return decode(Files(file.parent).read(file.name), str(file))
