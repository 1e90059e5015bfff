"""From the bytes of a photograph to a square picture of the retina: decode, preprocess, resize."""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from retinabench.errors import InputError

Image.MAX_IMAGE_PIXELS = 200_000_000  # the largest fundus cameras stay below 50 megapixels


@dataclass(frozen=True)
class Recipe:
    """How a photograph becomes a picture: everything that decides its pixels. size: side in pixels."""

    size: int


def picture(data: bytes, recipe: Recipe, name: str) -> NDArray[np.uint8]:
    """Turn the bytes of the photograph `name` into (size, size, 3) RGB: the disc fills the square, black around it.

    The field of view is what is brighter than a tenth of the middle row's mean (Graham's rule, applied to columns and
    rows); where it cannot be found the whole picture is used. Decoding is scaled (JPEG) where that saves time.

    Raises `InputError` where the bytes are no picture, or broken off.
    """
    size = recipe.size
    try:
        with Image.open(io.BytesIO(data)) as opened:
            opened.draft("RGB", (2 * size, 2 * size))
            rgb = ImageOps.exif_transpose(opened).convert("RGB")
    except UnidentifiedImageError:
        raise InputError(
            "is not a picture that can be read", file=name, cure="Replace or remove it."
        ) from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"is a broken picture ({error})", file=name, cure="Replace or remove it.") from None
    left, top, right, bottom = field_of_view(np.asarray(rgb))
    side = max(right - left, bottom - top)
    centre_x, centre_y = (left + right) / 2, (top + bottom) / 2
    box = (round(centre_x - side / 2), round(centre_y - side / 2))
    square = rgb.crop((*box, box[0] + side, box[1] + side))
    return np.asarray(
        square.resize((size, size), Image.Resampling.BOX if side >= 2 * size else Image.Resampling.BILINEAR)
    )


def field_of_view(rgb: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """Return the box (left, top, right, bottom) around the lit disc of a photograph (H, W, 3)."""
    brightness = rgb.sum(axis=2, dtype=np.int64)
    height, width = brightness.shape
    lit = brightness > brightness[height // 2].mean() / 10
    # A speck of noise outside the disc must not widen the box: a lit column has a lit twentieth.
    columns = np.flatnonzero(lit.mean(axis=0) > 0.05)
    rows = np.flatnonzero(lit.mean(axis=1) > 0.05)
    if columns.size == 0 or rows.size == 0:
        return 0, 0, width, height
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
