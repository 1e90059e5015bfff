"""Images with one mask file per concept: ISIC 2018, task 2, and similar sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.definition import BankDefinition, MaskFiles
from retinabench.concepts.banks.source_files import collected, matching, opened, patient_of
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.data.dataset import ConceptImages
from retinabench.data.ingest.archives import Files
from retinabench.data.preprocessing.squares import square_box, square_mask


def read_mask_files(
    definition: BankDefinition, layout: MaskFiles, files: Files, progress: Progress = QUIET
) -> ConceptImages:
    """Read the images, and look into every mask whether it is empty."""
    found = matching(files, layout.images)
    if not found:
        raise InputError(
            f"holds no images '{layout.images}'",
            file=files.root,
            hint="Point --source at the whole data set.",
        )
    names = [name for name, _ in found]
    masks = [_places(definition, layout, files, name, base) for name, base in found]
    truth = np.zeros((len(names), len(definition.concepts)), np.int8)
    with progress.track("Reading masks", len(names), unit="images") as advance:
        for row, own in enumerate(masks):
            for column, concept in enumerate(definition.concepts):
                if concept in own:
                    truth[row, column] = mask_of(files, own[concept], layout.level).any()
            advance(1)
    patients = [patient_of(name, layout.patient_pattern) for name in names]
    images = collected(definition, files, names, list(definition.concepts), truth, patients)

    def square_masks(row: int) -> NDArray[np.bool_]:
        return _square_masks(definition, layout, files, names[row], masks[row])

    return replace(images, masks=square_masks)


def _places(
    definition: BankDefinition, layout: MaskFiles, files: Files, name: str, base: str
) -> dict[str, str]:
    """Return the mask of each concept that has one."""
    places = {}
    for concept, given in definition.concepts.items():
        word = given if isinstance(given, str) else given[0]
        stem = PurePosixPath(name).stem
        place = base + layout.mask.replace("{image}", stem).replace("{concept}", word)
        if place in files:
            places[concept] = place
        elif layout.missing == "error":
            raise InputError(
                f"its mask '{place}' is missing",
                file=files.where(name),
                hint='Complete the download, or state missing = "absent" in the definition of the bank.',
            )
    return places


def mask_of(files: Files, name: str, level: int) -> NDArray[np.bool_]:
    """Return a mask (H, W)."""
    brightest: NDArray[np.uint8] = np.asarray(opened(files, name)).max(axis=2)
    return brightest > level


def _square_masks(
    definition: BankDefinition, layout: MaskFiles, files: Files, name: str, places: Mapping[str, str]
) -> NDArray[np.bool_]:
    rgb = opened(files, name)
    drawn = {concept: mask_of(files, place, layout.level) for concept, place in places.items()}
    for concept, mask in drawn.items():
        check_size(mask.shape, rgb.size, files.where(places[concept]))
    box = square_box(rgb, definition.crop)
    nothing = np.zeros((rgb.height, rgb.width), np.bool_)
    return np.stack([square_mask(drawn.get(concept, nothing), box) for concept in definition.concepts])


def check_size(shape: Sequence[int], size: Sequence[int], where: str) -> None:
    """Refuse a mask (H, W) that has another size than its image."""
    if tuple(shape) != (size[1], size[0]):
        raise InputError(
            f"is a mask of {shape[1]} x {shape[0]} pixels for an image of {size[0]} x {size[1]}", file=where
        )
