"""Graham's preprocessing as the Retina Benchmark released it, faults included, in NumPy: slow, and equal to it.

Source: google/uncertainty-baselines at 163351d4c923, `diabetic_retinopathy_dataset_utils.py` (`_btgraham_processing`
with its three steps) and `_example_parser`, run with OpenCV 4.10. Known faults, kept: the field of view is assumed at the
image's centre and measured along the middle row alone; the image is scaled without smoothing; a JPEG of quality 72
lies between; the last step stretches what is not square.

OpenCV's integer arithmetic is reproduced: all steps are equal bit by bit to the released code's on its own decoder.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retinabench.core.errors import InputError

RADIUS, KEPT, GREY, QUALITY = 300, 0.9, 128, 72
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
    """Return 4 * image - 4 * gaussian(image, radius / blur) + 128, saturating.

    Shapes: `image` (H, W, 3).
    """
    average = gaussian_fixed_point(image, radius / blur)
    return (4 * (image.astype(np.int32) - average) + GREY).clip(0, 255).astype(np.uint8)


def mask_and_crop(image: Pixels, radius: int = RADIUS) -> Pixels:
    """Grey outside the circle of nine tenths of the radius around the image's centre; cut to its square."""
    radius = int(radius * KEPT)
    height, width = image.shape[:2]
    x, y = width // 2, height // 2
    reach = _circle_rows(radius)[:, None]
    across, down = np.arange(width) - x, np.arange(height) - y
    inside = (np.abs(down) <= radius)[:, None] & (np.abs(across) <= reach[np.minimum(np.abs(down), radius)])
    image = np.where(inside[..., None], image, np.uint8(GREY))
    return image[max(y - radius, 0) : y + radius, max(x - radius, 0) : x + radius]


def recompress(image: Pixels) -> Pixels:
    """Encode as a JPEG of quality 72, and decode."""
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


def _taps(
    extent: int, size: int, scale: float, clamp: bool
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int32]]:
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
