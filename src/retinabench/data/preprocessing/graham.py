"""Graham's preprocessing: subtract the local average, so that cameras and lighting differ less.

    4 * image - 4 * gaussian(image, sigma) + 128, saturating;  sigma = radius / blur

inside nine tenths of the radius of the field of view, 128 outside (Graham 2015, winner of the Kaggle competition on EyePACS; blur 30,
also 5, 10 and 20, in the Retina Benchmark, which scales every field of view to a radius of 300 pixels first).

Corrected: the field of view is located (`field_circle`), it keeps its shape, no JPEG compression follows, and
the image is made at the smallest multiple of the asked size from 512 pixels (Graham's 540), then averaged down, so
that nothing is resampled twice. `graham_published` is the released code, faults included.

Fast: the Gaussian is a product with two narrow matrices, on a copy with pixels of 0.8 sigma. After the factor 4 it is
on average a quarter (blur 30) to two thirds (blur 3) of a grey level from the exact one: `tests/data/preprocessing/test_graham.py`.

The released code is that of google/uncertainty-baselines at 163351d4c923, `diabetic_retinopathy_dataset_utils.py`
(`_btgraham_processing` with its three steps) and `_example_parser`, run with OpenCV 4.10, and equal to it bit by bit. Known faults, kept:
the field of view is assumed at the image's centre and measured along the middle row alone; the image is scaled without
smoothing; a JPEG of quality 72 lies between; the last step stretches what is not square.
"""

from __future__ import annotations

import io
import math
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from retinabench.core.errors import InputError

BLOCK, SIZE = 8, 28
DARK = 16  # below this in every channel there is no retina
MARGIN = 6  # pixels of the rim, where the local average is not one of retina
NEIGHBOURHOOD = 7.5  # sigma of the local average, in pixels
GAIN = 2.0


def extremes(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pool an image (224, 224, 3) to (28, 28, 3) with its lesions: extremes of the green channel minus its local average, from 128."""
    side = BLOCK * SIZE
    if image.shape != (side, side, 3):
        raise ValueError(f"an image is ({side}, {side}, 3), not {image.shape}")
    from scipy.ndimage import binary_erosion, gaussian_filter  # which training does without

    field = binary_erosion(image.max(axis=2) > DARK, iterations=MARGIN)
    green = image[..., 1].astype(np.float64)
    weight = gaussian_filter(field.astype(np.float64), NEIGHBOURHOOD)
    average = gaussian_filter(green * field, NEIGHBOURHOOD) / np.maximum(weight, 1e-6)
    contrast = np.where(field, green - average, 0.0)
    blocks = contrast.reshape(SIZE, BLOCK, SIZE, BLOCK).transpose(0, 2, 1, 3).reshape(SIZE, SIZE, -1)
    # Means vary far less than extremes; twice as large they fill the byte about as well.
    channels = np.stack([blocks.min(axis=2), 2 * blocks.mean(axis=2), blocks.max(axis=2)], axis=2)
    return np.clip(np.rint(128 + GAIN * channels), 0, 255).astype(np.uint8)


SEARCHED = 256  # pixels of the longer side at which the circle is looked for: fits a radius to about 0.3 %
LEVELS = (0.2, 0.35, 0.5)  # between surround and retina: thresholds tried where the ordinary one finds no rim
RIM = 0.35  # least fall of brightness across a rim, as a share of retina less surround; real rims have 0.39 and more
BEYOND = 0.2  # of the radius: a box that reaches further than this beyond the circle holds surround


class Circle(NamedTuple):
    """Centre and radius in pixels; the image's upper left corner is (0, 0), the middle of its first pixel (½, ½)."""

    x: float
    y: float
    radius: float


def field_box(rgb: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """Return the box (left, top, right, bottom) around the field of view of an image (H, W, 3).

    Lit is what is brighter than a tenth of the middle row's mean (Graham's rule, applied to columns and rows). Where
    nothing is, the box is the whole image. Where noise or stretched contrast lights the surround too, so that the box
    reaches far beyond the circle of the field of view, the box is cut at the circle.
    """
    brightness = rgb[..., 0].astype(np.uint16) + rgb[..., 1] + rgb[..., 2]
    box = _box(brightness > brightness[len(brightness) // 2].mean() / 10)
    x, y, radius = field_circle(Image.fromarray(rgb))
    circle = (x - radius, y - radius, x + radius, y + radius)
    beyond = max(circle[0] - box[0], circle[1] - box[1], box[2] - circle[2], box[3] - circle[3])
    if beyond <= BEYOND * radius:
        return box
    left, top, right, bottom = (round(edge) for edge in circle)
    return max(box[0], left), max(box[1], top), min(box[2], right), min(box[3], bottom)


def field_circle(rgb: Image.Image) -> Circle:
    """Fit the circle of the field of view to the border between lit and dark.

    Works for fields of view off the centre, cut by the image's edge or by a straight mask, with specks around them, and
    in a noisy or lightened surround. The image's own edge is no border of the circle. Where too little of the border is
    seen (an image cropped inside the circle, a black one), the circle is centred on the lit box and half as wide as its
    longer side.
    """
    factor = max(1, max(rgb.size) // SEARCHED)
    grey = rgb.reduce(factor).convert("L")
    brightness = np.asarray(grey, dtype=np.float32)
    lit = _lit(brightness)
    left, top, right, bottom = _box(lit)
    circle = _fit(_border(lit))
    longer = max(right - left, bottom - top)
    if circle is not None and not 0.4 * longer < circle.radius < 0.75 * max(lit.shape):
        circle = None
    circle = _clearest(grey, brightness, circle)
    if circle is None:
        circle = Circle((left + right) / 2, (top + bottom) / 2, longer / 2)
    # Least squares differs in its last bits from machine to machine.
    return Circle(*(round(factor * float(value), 3) for value in circle))


def _clearest(grey: Image.Image, brightness: NDArray[np.float32], first: Circle | None) -> Circle | None:
    """Return the first circle if the brightness clearly falls across it, else the clearest at other thresholds."""
    dark, bright = _levels(brightness)
    span = max(bright - dark, 1e-6)
    best, score = first, _contrast(brightness, first) / span if first is not None else 0.0
    if score >= RIM:
        return best
    smooth = np.asarray(grey.filter(ImageFilter.MedianFilter(5)), np.float32)
    dark, bright = _levels(smooth)
    span = max(bright - dark, 1e-6)
    for level in LEVELS:
        circle = _fit(_border(smooth > dark + level * span))
        if circle is not None and 0.2 * max(smooth.shape) < circle.radius < 0.75 * max(smooth.shape):
            contrast = _contrast(brightness, circle) / span
            if contrast > max(score + 0.1, RIM):
                best, score = circle, contrast
    return best


def _contrast(brightness: NDArray[np.float32], circle: Circle) -> float:
    """Return by how much the brightness falls across a circle: the lower quartile over its visible sectors."""
    angle = 2 * np.pi * (np.arange(96) + 0.5) / 96
    height, width = brightness.shape
    rings = []
    for shares in ((0.9, 0.93, 0.96), (1.04, 1.07, 1.1)):
        radius = circle.radius * np.array(shares)[:, None]
        x = np.floor(circle.x + radius * np.cos(angle)).astype(int)
        y = np.floor(circle.y + radius * np.sin(angle)).astype(int)
        seen = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        rings.append(np.where(seen, brightness[y.clip(0, height - 1), x.clip(0, width - 1)], np.nan))
    falls = (rings[0] - rings[1]).mean(axis=0).reshape(24, 4).mean(axis=1)
    falls = falls[np.isfinite(falls)]
    return float(np.percentile(falls, 25)) if len(falls) >= 8 else 0.0


def _lit(brightness: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Tell the retina from the surround, whose level is that of the darkest corner."""
    dark, bright = _levels(brightness)
    if dark > bright / 3:  # all corners show retina
        dark = 0.0
    return np.asarray(brightness > dark + (bright - dark) / 10)


def _levels(brightness: NDArray[np.float32]) -> tuple[float, float]:
    bright = brightness[brightness >= brightness.mean()].mean()
    patch = max(1, min(brightness.shape) // 32)
    corners = [brightness[rows, columns].mean() for rows in (slice(patch), slice(-patch, None))
               for columns in (slice(patch), slice(-patch, None))]  # fmt: skip
    return min(corners), bright


def _box(lit: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    # A speck of noise outside the field of view must not widen the box: a lit column has a lit twentieth.
    columns = np.flatnonzero(lit.mean(axis=0) > 0.05)
    rows = np.flatnonzero(lit.mean(axis=1) > 0.05)
    if columns.size == 0 or rows.size == 0:
        return 0, 0, lit.shape[1], lit.shape[0]
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _border(lit: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return points (n, 2), x and y: the first and last lit pixel of each row and column, off the image's edge."""
    points = []
    for swapped, grid in ((False, lit), (True, lit.T)):
        lines = np.flatnonzero(grid.mean(axis=1) > 0.05)
        grid = grid[lines]
        first, last = grid.argmax(axis=1), grid.shape[1] - grid[:, ::-1].argmax(axis=1)
        for place, inside in ((first, first > 1), (last, last < grid.shape[1] - 1)):
            pair = (place[inside], lines[inside] + 0.5)
            points.append(np.stack(pair[::-1] if swapped else pair, axis=1))
    return np.concatenate(points).astype(np.float64)


def _fit(points: NDArray[np.float64]) -> Circle | None:
    """Fit a circle by consensus over triples of border points, then by least squares over those that agree."""
    if len(points) < 24:
        return None
    middle = points.mean(axis=0)
    points = points[np.argsort(np.arctan2(*(points - middle).T), kind="stable")]
    chosen = points[np.linspace(0, len(points) - 1, min(len(points), 240)).astype(int)]
    n = len(chosen)
    start = np.arange(0, n, max(1, n // 40))
    triples = [
        chosen[(start[:, None] + np.array(steps)) % n] for steps in ((0, n // 3, 2 * n // 3), (0, n // 6, n // 3))
    ]
    circles = _through(np.concatenate(triples))
    if not len(circles):  # all points on a line
        return None
    distance = np.hypot(chosen[:, 0] - circles[:, :1], chosen[:, 1] - circles[:, 1:2]) - circles[:, 2:]
    agree = np.abs(distance) < 0.015 * circles[:, 2:]
    best = int(agree.sum(axis=1).argmax())
    if agree[best].mean() < 0.4:
        return None
    kept = chosen[agree[best]] - middle
    equations = np.column_stack([2 * kept, np.ones(len(kept))])
    (x, y, rest), *_ = np.linalg.lstsq(equations, (kept**2).sum(axis=1))
    return Circle(x + middle[0], y + middle[1], float(np.sqrt(rest + x * x + y * y)))


def _through(triples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return circles (m, 3), x, y and radius, through triples (m, 3, 2); those of points on a line are infinite."""
    a, b, c = triples.transpose(1, 0, 2)
    (bx, by), (cx, cy) = (b - a).T, (c - a).T
    twice = 2 * (bx * cy - by * cx)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = (cy * (bx**2 + by**2) - by * (cx**2 + cy**2)) / twice
        y = (bx * (cx**2 + cy**2) - cx * (bx**2 + by**2)) / twice
    circles = np.column_stack([a[:, 0] + x, a[:, 1] + y, np.hypot(x, y)])
    finite: NDArray[np.float64] = circles[np.isfinite(circles).all(axis=1)]
    return finite


Crop = Literal["field_of_view", "whole"]
Box = tuple[int, int, int, int]  # left, top, right, bottom; it may extend beyond the image


def square_box(rgb: Image.Image, crop: Crop = "field_of_view") -> Box:
    left, top, right, bottom = field_box(np.asarray(rgb)) if crop == "field_of_view" else (0, 0, rgb.width, rgb.height)
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


KEPT = 0.9  # of the radius of the field of view: its rim is brightened by the dark around it
GREY = 128
BAND = 96  # pixels whose weights are multiplied at once
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
        columns, rows = (_coarse_edges(*pair, sigma, block) for pair in ((across, rgb.width), (down, rgb.height)))
        soft = rgb.reduce(block, (int(columns[0]), int(rows[0]), int(columns[-1]), int(rows[-1])))
        by_row = _bands(_gaussian(down, rows, sigma, rgb.height))
        by_column = _bands(_gaussian(across, columns, sigma, rgb.width))
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


Bands = list[tuple[slice, slice, NDArray[np.float32]]]  # of a matrix: rows, columns, and the part where it is not 0


def _bands(weights: NDArray[np.float32]) -> Bands:
    """Cut a matrix (fine, coarse) into groups of rows, without the columns that they do not use: most of them."""
    bands = []
    for start in range(0, len(weights), BAND):
        rows = slice(start, min(start + BAND, len(weights)))
        used = np.flatnonzero(weights[rows].any(axis=0))
        columns = slice(int(used[0]), int(used[-1]) + 1)
        bands.append((rows, columns, weights[rows, columns]))
    return bands


def _subtract(sharp: NDArray[np.uint8], soft: NDArray[np.uint8], by_row: Bands, by_column: Bands) -> NDArray[np.uint8]:
    """4 * sharp - 4 * average + 128, rounded and saturating, for average = by_row @ soft @ by_column.T.

    All numbers are whole multiples of a power of two and have at most 24 bits. So float32 adds them without rounding, and
    neither the processor nor the number of its threads can change a pixel.
    """
    values = soft.astype(np.float32)
    average = np.concatenate([part @ values[columns] for _, columns, part in by_row])
    # The weights add up to one: 128 passes through them.
    below = ((GREY + 0.5) * 4 - np.rint(average * 16)) * np.float32(1 / 16)
    rest = np.empty(sharp.shape, np.float32)
    for rows, columns, part in by_column:
        np.matmul(below[:, columns], part.T, out=rest[:, rows])
    rest += sharp
    np.clip(rest, 0, 255 / 4, out=rest)
    return np.multiply(rest, 4, out=np.empty_like(sharp), casting="unsafe")


@lru_cache(maxsize=4)
def _circle(side: int) -> Image.Image:
    """The mask: 255 in the circle that fills the square, 0 outside."""
    place = np.arange(side) + 0.5 - side / 2
    return Image.fromarray(np.where(np.hypot(place, place[:, None]) <= side / 2, np.uint8(255), np.uint8(0)))


RADIUS, GRAHAM_PUBLISHED_KEPT, GRAHAM_PUBLISHED_GREY, QUALITY = 300, 0.9, 128, 72
LARGEST = 8192  # pixels of a scaled image's side; the released code would ask for all memory
Pixels = NDArray[np.uint8]


def graham_published(rgb: Pixels, size: int, blur: int) -> Pixels:
    """Return (size, size, 3) from an image (H, W, 3)."""
    masked = mask_and_crop(subtract_local_average(scale_radius(rgb), blur))
    return stretch(recompress(masked), size)


def scale_radius(image: Pixels, radius: int = RADIUS) -> Pixels:
    """Scale so that half the lit pixels of the middle row are `radius`; lit: above a tenth of the row's mean."""
    row = image[len(image) // 2].sum(axis=1, dtype=np.int64)
    found = (row > row.mean() / 10).sum() / 2
    if found < 1:
        found = len(image) / 2
    if max(image.shape) * radius / found > LARGEST:
        raise InputError(
            f"shows a field of view of {2 * found:.0f} pixels in {max(image.shape)}: too small for the released code",
            hint="Leave --published out, or replace or remove it.",
        )
    if round(min(image.shape[:2]) * radius / found) < 1:
        raise InputError(
            f"is {image.shape[1]} x {image.shape[0]} pixels: nothing of it is left at the radius of the released code",
            hint="Leave --published out, or replace or remove it.",
        )
    return resize_linear(image, radius / found)


def subtract_local_average(image: Pixels, blur: int, radius: int = RADIUS) -> Pixels:
    """Return 4 * image - 4 * gaussian(image, radius / blur) + 128, saturating; `image` (H, W, 3)."""
    average = gaussian_fixed_point(image, radius / blur)
    return (4 * (image.astype(np.int32) - average) + GRAHAM_PUBLISHED_GREY).clip(0, 255).astype(np.uint8)


def mask_and_crop(image: Pixels, radius: int = RADIUS) -> Pixels:
    """Grey outside the circle of nine tenths of the radius around the image's centre; cut to its square."""
    radius = int(radius * GRAHAM_PUBLISHED_KEPT)
    height, width = image.shape[:2]
    x, y = width // 2, height // 2
    reach = _circle_rows(radius)[:, None]
    across, down = np.arange(width) - x, np.arange(height) - y
    inside = (np.abs(down) <= radius)[:, None] & (np.abs(across) <= reach[np.minimum(np.abs(down), radius)])
    image = np.where(inside[..., None], image, np.uint8(GRAHAM_PUBLISHED_GREY))
    return image[max(y - radius, 0) : y + radius, max(x - radius, 0) : x + radius]


def recompress(image: Pixels) -> Pixels:
    sink = io.BytesIO()
    Image.fromarray(image).save(sink, "JPEG", quality=QUALITY)
    return np.asarray(Image.open(sink))


def stretch(image: Pixels, size: int) -> Pixels:
    """TensorFlow's bilinear `resize` to (size, size, 3): not smoothed, aspect not kept; then rounded."""
    (upper, lower, y), (left, right, x) = (_neighbours(extent, size) for extent in image.shape[:2])
    values = image.astype(np.float32)
    across = values[:, left] + (values[:, right] - values[:, left]) * x[:, None]
    stretched = across[upper] + (across[lower] - across[upper]) * y[:, None, None]
    return np.asarray(np.rint(stretched).clip(0, 255), np.uint8)


def _neighbours(extent: int, size: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float32]]:
    """Return for each of `size` pixels its two neighbours, and the weight of the second."""
    place = (np.arange(size) + 0.5) * (extent / size) - 0.5
    low = np.floor(place).astype(int)
    return low.clip(0), (low + 1).clip(max=extent - 1), (place - low).astype(np.float32)


def resize_linear(image: Pixels, scale: float) -> Pixels:
    """`cv2.resize(image, (0, 0), fx=scale, fy=scale)` of 8-bit images: bilinear with weights of 11 bits."""
    height, width = (round(extent * scale) for extent in image.shape[:2])
    if scale == 0.5:  # OpenCV averages 2 x 2 pixels here
        even = np.pad(image, ((0, 1), (0, 1), (0, 0)), "edge")[: 2 * height, : 2 * width].astype(np.int32)
        total = even[::2, ::2] + even[1::2, ::2] + even[::2, 1::2] + even[1::2, 1::2]
        return np.asarray((total + 2) >> 2, np.uint8)
    left, right, x = _taps(image.shape[1], width, scale, clamp=True)
    upper, lower, y = _taps(image.shape[0], height, scale, clamp=False)

    def row(rows: NDArray[Any]) -> NDArray[np.int32]:
        lines = image[rows]
        return np.asarray((lines[:, left] * (2048 - x)[:, None] + lines[:, right] * x[:, None]) >> 4)

    y = y[:, None, None]
    total = ((row(upper) * (2048 - y)) >> 16) + ((row(lower) * y) >> 16)
    return np.asarray(((total + 2) >> 2).clip(0, 255), np.uint8)


def _taps(extent: int, size: int, scale: float, clamp: bool) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int32]]:
    """Return for each of `size` pixels its two neighbours, and the weight of the second in 2048ths."""
    place = ((np.arange(size) + 0.5) * (1 / scale) - 0.5).astype(np.float32)
    low = np.floor(place).astype(int)
    share = place - low.astype(np.float32)
    if clamp:
        share[(low < 0) | (low >= extent - 1)] = 0
    weight = np.rint(share * np.float32(2048)).astype(np.int32)
    return low.clip(0, extent - 1), (low + 1).clip(0, extent - 1), weight


def gaussian_fixed_point(image: Pixels, sigma: float) -> NDArray[np.int32]:
    """`cv2.GaussianBlur(image, (0, 0), sigma)` of 8-bit images: weights of 8 bits, three sigma wide, mirrored edges."""
    kernel = gaussian_kernel(sigma)
    rows, columns = (_band(kernel, extent) for extent in image.shape[:2])
    # Sums stay below 2^24, so float32 adds these integers without rounding.
    planes = [rows @ image[..., c].astype(np.float32) @ columns.T for c in range(3)]
    sums: NDArray[np.int32] = np.stack(planes, axis=2).astype(np.int32)
    return (sums + (1 << 15)) >> 16


def gaussian_kernel(sigma: float) -> NDArray[np.int32]:
    """Return the weights in 256ths: each rounding error is carried to the next, from the ends to the middle."""
    width = round(sigma * 6 + 1) | 1
    half = width // 2
    ideal = np.exp(-0.5 * (np.arange(-half, half + 1) / sigma) ** 2)
    ideal *= 256 / ideal.sum()
    kernel, error = np.zeros(width, np.int32), 0.0
    for k in range(half):
        wanted = ideal[k] + error
        kernel[k] = kernel[-1 - k] = round(wanted)
        error = wanted - kernel[k]
    kernel[half] = 256 - kernel.sum()
    return kernel


def _band(kernel: NDArray[np.int32], extent: int) -> NDArray[np.float32]:
    """Return the matrix (extent, extent) that convolves with `kernel`; the edge pixel is mirrored but not repeated."""
    half = len(kernel) // 2
    place = np.arange(extent)[:, None] + np.arange(-half, half + 1)
    period = max(1, 2 * (extent - 1))
    place = np.abs((place + extent - 1) % period - (extent - 1))
    band = np.zeros((extent, extent), np.float32)
    np.add.at(band, (np.arange(extent)[:, None], place), kernel.astype(np.float32))
    return band


def _circle_rows(radius: int) -> NDArray[np.int64]:
    """Return the half widths (radius + 1,) of the rows of `cv2.circle`, filled: the midpoint algorithm."""
    reach = np.zeros(radius + 1, np.int64)
    error, x, y, plus, minus = 0, radius, 0, 1, 2 * radius - 1
    while x >= y:
        reach[y] = max(reach[y], x)
        reach[x] = max(reach[x], y)
        y += 1
        error += plus
        plus += 2
        if error > 0:
            error -= minus
            x -= 1
            minus -= 2
    return reach
