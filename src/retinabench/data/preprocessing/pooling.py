"""Pool fundus images to 28 x 28 pixels that still show lesions: minimum, mean and maximum of every block.

Averaging 8 x 8 blocks wipes out microaneurysms and small exudates. Their darkest and brightest pixel does not: a
network of 60,000 weights can then grade, and Hamiltonian Monte Carlo can follow it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion, gaussian_filter

BLOCK, SIZE = 8, 28
DARK = 16  # below this in every channel there is no retina
MARGIN = 6  # pixels of the rim, where the local average is not one of retina
NEIGHBOURHOOD = 7.5  # sigma of the local average, in pixels
GAIN = 2.0


def extremes(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pool an image (224, 224, 3) to (28, 28, 3): the green channel minus its local average, centred at 128."""
    side = BLOCK * SIZE
    if image.shape != (side, side, 3):
        raise ValueError(f"an image is ({side}, {side}, 3), not {image.shape}")
    field = binary_erosion(image.max(axis=2) > DARK, iterations=MARGIN)
    green = image[..., 1].astype(np.float64)
    weight = gaussian_filter(field.astype(np.float64), NEIGHBOURHOOD)
    average = gaussian_filter(green * field, NEIGHBOURHOOD) / np.maximum(weight, 1e-6)
    contrast = np.where(field, green - average, 0.0)
    blocks = contrast.reshape(SIZE, BLOCK, SIZE, BLOCK).transpose(0, 2, 1, 3).reshape(SIZE, SIZE, -1)
    # Means vary far less than extremes; twice as large they fill the byte about as well.
    channels = np.stack([blocks.min(axis=2), 2 * blocks.mean(axis=2), blocks.max(axis=2)], axis=2)
    return np.clip(np.rint(128 + GAIN * channels), 0, 255).astype(np.uint8)
