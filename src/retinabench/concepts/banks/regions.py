"""Regions of images as samples: ids, truth and pixels.

An image is cut by a grid into grid * grid regions, numbered row by row from the top left. Sample k of a bank of regions is
region k % grid² of image k // grid².
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


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
