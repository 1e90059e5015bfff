"""Images with known lesions: which concepts are present in each image and in each of its regions.

Images and masks are made when they are asked for, so that a collection may be larger than memory. An image is cut by a grid
into grid * grid regions, numbered row by row from the top left: sample k of a bank of regions is region k % grid² of image
k // grid².
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import Bank
from retinabench.core.atomic_files import atomic_write
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Advance, Progress
from retinabench.core.random_streams import numpy_generator
from retinabench.data.dataset import LesionImages
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


def drawn(images: int, *, seed: int = 0, population: str = "in_domain", mask_size: int = 256) -> LesionImages:
    """Return the first synthetic retinas of a population; they are rendered when they are asked for.

    The truth of an image is its lesion counts (`synthetic.truth`), that of a region the mask rendered at ``mask_size``.

    Args:
        images: Number of images, at least 10.
        seed: Seed of the renderer.
        population: ``in_domain`` or ``shifted``.
        mask_size: Side of the masks, in pixels.

    Returns:
        The collection.

    Raises:
        InputError: Fewer than ten images.
    """
    if images < 10:
        raise InputError(f"{images} images are too few to train and question on", hint="Use --images 100.")
    facts = [truth(index, seed=seed, population=population) for index in range(images)]

    def masks(row: int) -> NDArray[np.bool_]:
        found = draw(row, size=mask_size, seed=seed, population=population).masks
        nothing = np.zeros((mask_size, mask_size), np.bool_)
        covered = [[found.get(kind, nothing) for kind in kinds] for kinds in DRAWN.values()]
        return np.stack([np.logical_or.reduce(layers) for layers in covered])

    return LesionImages(
        sample_id=np.array([f"{population}-{index:06d}" for index in range(images)]),
        concepts=tuple(DRAWN),
        truth=np.array([[any(t.lesions[k] for k in kinds) for kinds in DRAWN.values()] for t in facts]),
        patient_id=np.array([f"{population}-p{fact.patient:06d}" for fact in facts]),
        image=lambda row, size: draw(row, size=size, seed=seed, population=population, masks=False).image,
        masks=masks,
    )


def split(images: LesionImages, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows to train on and the rows to ask about, both sorted; patients are kept whole.

    The second part holds `HELD_OUT` of the images, or up to a patient's images more.
    """
    patients = numpy_generator(seed, "lesions", "split").permutation(np.unique(images.patient_id))
    place = {patient: number for number, patient in enumerate(patients)}
    order = np.array([place[patient] for patient in images.patient_id])
    wanted = round(HELD_OUT * len(images))
    last = np.sort(order)[wanted - 1]
    return np.flatnonzero(order > last), np.flatnonzero(order <= last)


@dataclass(frozen=True, eq=False)
class Samples:
    """M images or regions (M, size, size, 3) with their ids (M,) and truth (M, C)."""

    sample_id: NDArray[np.str_]
    truth: NDArray[np.bool_]
    images: NDArray[np.uint8]


def gather(
    images: LesionImages,
    rows: NDArray[np.intp],
    *,
    size: int,
    grid: int = 1,
    advance: Advance = lambda images: None,
) -> Samples:
    """Return the samples of some rows: the images themselves or, with ``grid`` above 1, the regions of each.

    Args:
        images: The collection.
        rows: (M,) rows.
        size: Side of each sample, in pixels.
        grid: Regions per side of an image.
        advance: Called with 1 after each image.

    Returns:
        The M samples, or M * grid * grid regions.
    """
    parts = []
    for part in _parts(images, rows, size, grid):
        parts.append(part)
        advance(1)
    names, truth, cut = zip(*parts, strict=True)
    return Samples(np.concatenate(names), np.concatenate(truth), np.concatenate(cut))


def _parts(
    images: LesionImages, rows: NDArray[np.intp], size: int, grid: int
) -> Iterator[tuple[NDArray[np.str_], NDArray[np.bool_], NDArray[np.uint8]]]:
    for row in rows:
        image = images.image(int(row), grid * size)
        if grid == 1:
            yield images.sample_id[[row]], images.truth[[row]], image[None]
        else:
            names = np.array(region_ids(str(images.sample_id[row]), grid))
            yield names, region_truth(images.masks(int(row)), grid), region_images(image, grid)


def region_bank(images: LesionImages, grid: int, file: Path, progress: Progress = QUIET) -> Bank:
    """Return a bank of the regions of every image, whose truth is a memory map.

    Memory holds the masks of one image at a time. Samples are identified by their number. The file can be opened again with
    ``Bank(None, concepts, np.load(file, mmap_mode="r"))``.

    Args:
        images: The images.
        grid: Regions per side of an image.
        file: Where the truth is written (.npy).
        progress: Where progress is shown.

    Returns:
        The bank, with grid * grid samples per image.
    """
    with (
        atomic_write(file) as handle,
        progress.track("Truth of regions", len(images), unit="images") as advance,
    ):
        shape = (len(images) * grid**2, len(images.concepts))
        np.lib.format.write_array_header_2_0(handle, {"descr": "|i1", "fortran_order": False, "shape": shape})
        for row in range(len(images)):
            handle.write(region_truth(images.masks(row), grid).astype(np.int8).tobytes())
            advance(1)
    return Bank(None, images.concepts, np.load(file, mmap_mode="r", allow_pickle=False), source=str(file))


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
