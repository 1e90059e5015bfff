"""Regions of images as samples: ids, truth and pixels, and a bank of regions that may be larger than memory.

An image is cut by a grid into grid * grid regions, numbered row by row from the top left. Sample k of a bank of regions is
region k % grid² of image k // grid².
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import Bank
from retinabench.core.atomic_files import atomic_write
from retinabench.core.progress import QUIET, Progress

if TYPE_CHECKING:
    from retinabench.data.lesion_images import LesionImages


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


def region_bank(images: LesionImages, grid: int, file: Path, progress: Progress = QUIET) -> Bank:
    """Return a bank of the regions of every image, whose truth is a memory map.

    Memory holds the masks of one image at a time. Samples are identified by their number. The file can be opened again with
    ``Bank(None, concepts, np.load(file, mmap_mode="r"))``.

    Args:
        images: The images.
        grid: Regions per side of an image.
        file: Where the truth is written (.npy).
        progress: Where progress is shown.
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
