"""Fundus pictures in 28 x 28 pixels that still show lesions: least, mean and greatest value of every block.

Averaging 8 x 8 blocks wipes out microaneurysms and small exudates. Their darkest and brightest pixel does not: a
network of 60,000 weights can then grade, and Hamiltonian Monte Carlo can follow it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion, gaussian_filter

BLOCK, SIZE = 8, 28
DARK = 16  # below this in every channel lies no retina
MARGIN = 6  # pixels of the rim, where the local average is not one of retina
NEIGHBOURHOOD = 7.5  # deviation of the local average, in pixels
GAIN = 2.0


def extremes(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(224, 224, 3) -> (28, 28, 3): of the green channel less its local average, 128 is the average itself."""
    side = BLOCK * SIZE
    if picture.shape != (side, side, 3):
        raise ValueError(f"a picture is ({side}, {side}, 3), not {picture.shape}")
    field = binary_erosion(picture.max(axis=2) > DARK, iterations=MARGIN)
    green = picture[..., 1].astype(np.float64)
    weight = gaussian_filter(field.astype(np.float64), NEIGHBOURHOOD)
    average = gaussian_filter(green * field, NEIGHBOURHOOD) / np.maximum(weight, 1e-6)
    contrast = np.where(field, green - average, 0.0)
    blocks = contrast.reshape(SIZE, BLOCK, SIZE, BLOCK).transpose(0, 2, 1, 3).reshape(SIZE, SIZE, -1)
    # Means vary far less than extremes; twice as large they fill the byte about as well.
    channels = np.stack([blocks.min(axis=2), 2 * blocks.mean(axis=2), blocks.max(axis=2)], axis=2)
    return np.clip(np.rint(128 + GAIN * channels), 0, 255).astype(np.uint8)
