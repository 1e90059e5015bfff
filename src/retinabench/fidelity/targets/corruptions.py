"""Pictures spoilt at five strengths, after the kinds of CIFAR-10-C (Hendrycks & Dietterich 2019)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

Picture = NDArray[np.uint8]
STRENGTHS = (1, 2, 3, 4, 5)


def noise(picture: Picture, strength: int, generator: np.random.Generator) -> Picture:
    """Add Gaussian noise of deviation 4 to 26 grey levels."""
    deviation = (4, 8, 12, 18, 26)[strength - 1]
    return _bytes(picture + generator.normal(0, deviation, picture.shape))


def blur(picture: Picture, strength: int, generator: np.random.Generator) -> Picture:
    """Blur by a Gaussian of deviation 1 to 5 pixels."""
    deviation = (1.0, 1.5, 2.5, 3.5, 5.0)[strength - 1]
    return _bytes(gaussian_filter(picture.astype(np.float64), (deviation, deviation, 0)))


def brightness(picture: Picture, strength: int, generator: np.random.Generator) -> Picture:
    """Multiply by 1.2 to 2.2: the bright parts saturate."""
    return _bytes(picture.astype(np.float64) * (1.2, 1.4, 1.6, 1.9, 2.2)[strength - 1])


def pixelation(picture: Picture, strength: int, generator: np.random.Generator) -> Picture:
    """Keep one pixel in every block of 2 to 7."""
    block = (2, 3, 4, 5, 7)[strength - 1]
    rows, columns = (np.arange(side) // block * block for side in picture.shape[:2])
    return picture[np.ix_(rows, columns)]


CORRUPTIONS: dict[str, Callable[[Picture, int, np.random.Generator], Picture]] = {
    "noise": noise,
    "blur": blur,
    "brightness": brightness,
    "pixelation": pixelation,
}


def _bytes(values: NDArray[np.float64]) -> Picture:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)
