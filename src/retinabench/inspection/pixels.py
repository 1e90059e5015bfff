"""Statistics of every prepared image: brightness, sharpness, a digest, and a spectrum by which copies are found."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retinabench.core.progress import QUIET, Progress
from retinabench.data.prepared.folder import Prepared
from retinabench.inspection.alignment import Spectrum, detail_of, spectrum

Floats = NDArray[np.float32]
MARGIN = 0.15  # share of the side: leaves the square inside the field of view
CHUNK = 128


@dataclass(frozen=True, eq=False)
class Pixels:
    """Statistics of N images.

    Attributes:
        brightness: Mean grey value inside the field of view, (N,), 0 to 255.
        sharpness: Mean absolute Laplacian there per unit of brightness, (N,); low where an image is blurred.
        digest: SHA-256 of all pixels, (N,).
        spectra: Of the fine detail, (N, RADII, FREQUENCIES).
        whole: Whether the field of view fills the images.
    """

    brightness: Floats
    sharpness: Floats
    digest: NDArray[np.bytes_]
    spectra: Spectrum
    whole: bool


def read_pixels(data: Prepared, progress: Progress = QUIET) -> Pixels:
    """Read every image of a prepared folder once, in the order of the shards, and return its statistics."""
    parts, whole = [], data.settings.preprocess == "graham"
    with progress.track("Reading images", len(data.records), unit="images") as advance:
        for start in range(0, len(data.records), CHUNK):
            images = data.images(np.arange(start, min(start + CHUNK, len(data.records))))
            parts.append(_statistics(images, whole))
            advance(len(images))
    brightness, sharpness, digest, spectra = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Pixels(brightness, sharpness, digest, spectra, whole)


def _statistics(
    images: NDArray[np.uint8], whole: bool
) -> tuple[Floats, Floats, NDArray[np.bytes_], Spectrum]:
    inside = np.stack([np.asarray(_inside(image), np.float32) for image in images])
    brightness = inside.mean(axis=(1, 2))
    laplacian = (
        inside[:, :-2, 1:-1] + inside[:, 2:, 1:-1] + inside[:, 1:-1, :-2] + inside[:, 1:-1, 2:]
        - 4 * inside[:, 1:-1, 1:-1]
    )  # fmt: skip
    sharpness = np.abs(laplacian).mean(axis=(1, 2)) / np.maximum(brightness, 1)
    digest = np.array([hashlib.sha256(image).digest() for image in images], "S32")
    spectra = np.stack([spectrum(detail_of(image, whole=whole)) for image in images])
    return brightness, sharpness, digest, spectra


def _inside(image: NDArray[np.uint8]) -> Image.Image:
    """Return the grey square inside the field of view of an image (S, S, 3), reduced to below 256 pixels."""
    side = len(image)
    margin = round(MARGIN * side)
    inside = np.ascontiguousarray(image[margin : side - margin, margin : side - margin])
    return Image.fromarray(inside).convert("L").reduce(max(side // 128, 1))
