"""Square images and masks of any collection: both are cut by one box, so that a mask stays on its image."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retinabench.data.preprocessing.field_of_view import field_box

Crop = Literal["field_of_view", "whole"]
Box = tuple[int, int, int, int]  # left, top, right, bottom; it may extend beyond the image


def square_box(rgb: Image.Image, crop: Crop = "field_of_view") -> Box:
    """Return the square that is cut from an image."""
    left, top, right, bottom = (
        field_box(np.asarray(rgb)) if crop == "field_of_view" else (0, 0, rgb.width, rgb.height)
    )
    side = max(right - left, bottom - top)
    x, y = round((left + right - side) / 2), round((top + bottom - side) / 2)
    return x, y, x + side, y + side


def square_image(rgb: Image.Image, size: int, crop: Crop = "field_of_view") -> NDArray[np.uint8]:
    """Return the square of an image, resized; black where it extends beyond the image."""
    square = rgb.crop(square_box(rgb, crop))
    resampling = Image.Resampling.BOX if square.width >= 2 * size else Image.Resampling.BILINEAR
    return np.asarray(square.resize((size, size), resampling))


def square_mask(mask: NDArray[np.bool_], box: Box) -> NDArray[np.bool_]:
    """Return the square of a mask (H, W) of the whole image, false where it extends beyond the image."""
    return np.asarray(Image.fromarray(mask).crop(box))
