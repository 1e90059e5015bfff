"""Graham's preprocessing, corrected: subtract the local average, so that cameras and lighting differ less.

    4 * image - 4 * gaussian(image, sigma) + 128, saturating;  sigma = radius / blur

inside nine tenths of the radius of the field of view, 128 outside (Graham 2015, winner of the Kaggle competition on EyePACS; blur 30,
also 5, 10 and 20, in the Retina Benchmark, which scales every field of view to a radius of 300 pixels first).

Corrected: the field of view is located (`field_of_view.field_circle`), it keeps its shape, no JPEG compression follows, and
the image is made at the smallest multiple of the asked size from 512 pixels (Graham's 540), then averaged down, so
that nothing is resampled twice. `graham_published.py` is the released code, faults included.

Fast: the Gaussian is a product with two narrow matrices, on a copy with pixels of 0.8 sigma. After the factor 4 it is
on average a quarter (blur 30) to two thirds (blur 3) of a grey level from the exact one: `tests/data/preprocessing/test_graham.py`.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retinabench.data.preprocessing.field_of_view import Circle

KEPT = 0.9  # of the radius of the field of view: its rim is brightened by the dark around it
GREY = 128
WEIGHT = np.float32(4096)  # weights are whole multiples of 1/4096


def working_side(size: int) -> int:
    """Return the side in pixels at which an image of `size` is made: its smallest multiple from 512."""
    return size * math.ceil(512 / size)


def graham(rgb: Image.Image, circle: Circle, size: int, blur: int) -> Image.Image:
    """Return the square around the field of view with the local average subtracted, and 128 outside."""
    side = working_side(size)
    scale = circle.radius * 2 * KEPT / side  # pixels of the image per pixel of the square
    sigma = max(circle.radius / blur, 0.5)  # less than half a pixel holds nothing to average over
    square = Image.new("RGB", (side, side), (GREY, GREY, GREY))
    left, across = _fine_edges(circle.x, scale, side, rgb.width)
    top, down = _fine_edges(circle.y, scale, side, rgb.height)
    width, height = len(across) - 1, len(down) - 1
    if width > 0 and height > 0:
        box = (across[0], down[0], across[-1], down[-1])
        sharp = rgb.resize((width, height), Image.Resampling.HAMMING, box, reducing_gap=3.0)
        # Blocks of about 0.8 sigma, odd: Pillow rounds halves up, so even ones would be too bright by an eighth.
        block = (max(1, int(0.8 * sigma)) - 1) | 1
        columns, rows = (
            _coarse_edges(*pair, sigma, block) for pair in ((across, rgb.width), (down, rgb.height))
        )
        soft = rgb.reduce(block, (int(columns[0]), int(rows[0]), int(columns[-1]), int(rows[-1])))
        by_row = _gaussian(down, rows, sigma, rgb.height)
        by_column = _gaussian(across, columns, sigma, rgb.width)
        planes = [
            _subtract(np.asarray(one), np.asarray(other), by_row, by_column)
            for one, other in zip(sharp.split(), soft.split(), strict=True)
        ]
        mask = _circle(side).crop((left, top, left + width, top + height))
        square.paste(Image.merge("RGB", [Image.fromarray(plane) for plane in planes]), (left, top), mask)
    return square.reduce(side // size) if side > size else square


Edges = NDArray[np.float64]  # (n + 1,): along one axis of the image, where each of n pixels begins and ends


def _fine_edges(middle: float, scale: float, side: int, extent: int) -> tuple[int, Edges]:
    """Return those of the square's `side` pixels that lie wholly in the image: the first one's number, and edges."""
    edges = middle + (np.arange(side + 1, dtype=np.float64) - side / 2) * scale
    inside = np.flatnonzero((edges >= 0) & (edges <= extent))
    return (int(inside[0]), edges[inside]) if inside.size else (0, edges[:1])


def _coarse_edges(fine: Edges, extent: int, sigma: float, block: int) -> Edges:
    """Cover `fine` and three sigma around it by blocks of whole pixels; the last one may be narrower."""
    low, high = max(0, math.floor(fine[0] - 3 * sigma)), min(extent, math.ceil(fine[-1] + 3 * sigma))
    return np.append(np.arange(low, high, block), high).astype(np.float64)


def _gaussian(fine: Edges, coarse: Edges, sigma: float, extent: int) -> NDArray[np.float32]:
    """Return the weights (fine, coarse) of the Gaussian average, of sum one; the image is mirrored at its edges."""
    target = ((fine[1:] + fine[:-1]) / 2).astype(np.float32)[:, None]
    source = ((coarse[1:] + coarse[:-1]) / 2).astype(np.float32)
    widths = np.diff(coarse).astype(np.float32)
    # Averaging over a block has blurred already, by the variance of a uniform distribution.
    precision = np.float32(0.5 / (sigma**2 - (widths[0] ** 2 - 1) / 12))
    weights: NDArray[np.float32] = np.exp(-precision * (target - source) ** 2)
    if coarse[0] == 0:
        weights += np.exp(-precision * (target + source) ** 2)
    if coarse[-1] == extent:
        weights += np.exp(-precision * (target - 2 * extent + source) ** 2)
    weights *= widths
    weights = np.rint(weights * (WEIGHT / weights.sum(axis=1, keepdims=True)))
    largest = weights.argmax(axis=1)
    weights[np.arange(len(weights)), largest] += WEIGHT - weights.sum(axis=1)
    return weights / WEIGHT


def _subtract(
    sharp: NDArray[np.uint8],
    soft: NDArray[np.uint8],
    by_row: NDArray[np.float32],
    by_column: NDArray[np.float32],
) -> NDArray[np.uint8]:
    """4 * sharp - 4 * average + 128, rounded and saturating, for average = by_row @ soft @ by_column.T.

    All numbers are whole multiples of a power of two and have at most 24 bits. So float32 adds them without rounding, and
    neither the processor nor the number of its threads can change a pixel.
    """
    average = np.rint(by_row @ soft.astype(np.float32) * 16)
    rest = ((GREY + 0.5) * 4 - average) @ by_column.T  # the weights add up to one: 128 passes through them
    rest *= np.float32(1 / 16)
    rest += sharp
    np.clip(rest, 0, 255 / 4, out=rest)
    return np.multiply(rest, 4, out=np.empty_like(sharp), casting="unsafe")


@lru_cache(maxsize=4)
def _circle(side: int) -> Image.Image:
    """The mask: 255 in the circle that fills the square, 0 outside."""
    place = np.arange(side) + 0.5 - side / 2
    return Image.fromarray(np.where(np.hypot(place, place[:, None]) <= side / 2, np.uint8(255), np.uint8(0)))
