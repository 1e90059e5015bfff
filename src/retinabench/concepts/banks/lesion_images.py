"""Images with known lesions: which concepts are present in each image and in each of its regions.

Images and masks are made when they are asked for, so that a collection may be larger than memory. An image is cut by a grid
into grid * grid regions, numbered row by row from the top left: sample k of a bank of regions is region k % grid² of image
k // grid².
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.random_streams import numpy_generator
from retinabench.data.dataset import ConceptImages
from retinabench.data.datasets.synthetic import MOST_IMAGES
from retinabench.data.synthetic.fundus import draw
from retinabench.data.synthetic.truth import truth

DRAWN: dict[str, tuple[str, ...]] = {
    "microaneurysm": ("microaneurysm",),
    "haemorrhage": (
        "blot_haemorrhage",
        "flame_haemorrhage",
        "preretinal_haemorrhage",
        "vitreous_haemorrhage",
    ),
    "hard_exudate": ("hard_exudate",),
    "soft_exudate": ("cotton_wool_spot",),
    "new_vessels": ("new_vessels",),
}
"""Concepts of the synthetic retinas, and the kinds of `synthetic.LESIONS` that each of them covers."""

HELD_OUT = 0.3
"""Share of the images that are asked about rather than trained on: 43 of the 143 of the published experiment."""


def drawn(
    images: int, *, seed: int = 0, population: str = "in_domain", mask_size: int = 256
) -> ConceptImages:
    """Return the first synthetic retinas of a population; they are rendered when they are asked for.

    The truth of an image is its lesion counts (`synthetic.truth`), that of a region the mask rendered at ``mask_size``.
    """
    if images < 10:
        raise InputError(f"{images} images are too few to train and question on", hint="Use --images 100.")
    if images > MOST_IMAGES:
        problem = f"{images:,} images are more than are drawn ({MOST_IMAGES:,})"
        raise InputError(problem, hint="Give fewer --images.")
    facts = [truth(index, seed=seed, population=population) for index in range(images)]

    def masks(row: int) -> NDArray[np.bool_]:
        found = draw(row, size=mask_size, seed=seed, population=population).masks
        nothing = np.zeros((mask_size, mask_size), np.bool_)
        covered = [[found.get(kind, nothing) for kind in kinds] for kinds in DRAWN.values()]
        return np.stack([np.logical_or.reduce(layers) for layers in covered])

    def without(row: int, size: int, concepts: Collection[str]) -> NDArray[np.uint8]:
        kinds = {kind for concept in concepts for kind in DRAWN[concept]}
        return draw(row, size=size, seed=seed, population=population, masks=False, without=kinds).image

    return ConceptImages(
        sample_id=np.array([f"{population}-{index:06d}" for index in range(images)]),
        concepts=tuple(DRAWN),
        truth=np.array(
            [[any(t.lesions[k] for k in kinds) for kinds in DRAWN.values()] for t in facts], np.int8
        ),
        patient_id=np.array([f"{population}-p{fact.patient:06d}" for fact in facts]),
        image=lambda row, size: draw(row, size=size, seed=seed, population=population, masks=False).image,
        masks=masks,
        without=without,
    )


def split(
    images: ConceptImages, seed: int, held_out: float = HELD_OUT
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows to train on and the rows to ask about, both sorted; patients are kept whole."""
    patients = numpy_generator(seed, "lesions", "split").permutation(np.unique(images.patient_id))
    place = {patient: number for number, patient in enumerate(patients)}
    order = np.array([place[patient] for patient in images.patient_id])
    wanted = round(held_out * len(images))
    last = np.sort(order)[wanted - 1]
    return np.flatnonzero(order > last), np.flatnonzero(order <= last)


def region_ids(sample_id: str, grid: int) -> list[str]:
    """Return the ids of the grid * grid regions of an image, row by row from the top left: `IDRiD_01/r1c1`, `IDRiD_01/r1c2`, …"""
    return [f"{sample_id}/r{row}c{column}" for row in range(1, grid + 1) for column in range(1, grid + 1)]


def region_truth(masks: NDArray[np.bool_], grid: int) -> NDArray[np.bool_]:
    """Return (grid * grid, C): whether a pixel of the masks (C, H, W) lies in each region, in the order of `region_ids`."""
    concepts, height, width = masks.shape
    rows = np.linspace(0, height, grid + 1).round().astype(int)[:-1]
    columns = np.linspace(0, width, grid + 1).round().astype(int)[:-1]
    found = np.logical_or.reduceat(np.logical_or.reduceat(masks, rows, axis=1), columns, axis=2)
    return found.reshape(concepts, grid * grid).T


def region_images(image: NDArray[np.uint8], grid: int) -> NDArray[np.uint8]:
    """Cut an image (grid * size, grid * size, 3) into (grid * grid, size, size, 3), in the order of `region_ids`."""
    size = len(image) // grid
    cut = image.reshape(grid, size, grid, size, 3).swapaxes(1, 2)
    return cut.reshape(grid * grid, size, size, 3)
