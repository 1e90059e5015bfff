"""Statistics of every prepared image: brightness, sharpness, and a signature by which copies are found.

The signature follows perceptual hashing: low frequencies of the cosine transform of a small grey image. All fundus images
share a bright field of view on black, which would dominate the signature. The transform therefore uses only the square
inside the field of view, without its lowest frequencies, and each coefficient is standardised over the data set. Signatures
of unrelated images are then nearly orthogonal; those of copies are nearly equal, whatever their brightness.

References:
    Zauner, Implementation and benchmarking of perceptual image hash functions (2010).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import dctn
from scipy.ndimage import gaussian_filter

from retinabench.core.progress import QUIET, Progress
from retinabench.data.prepared import Prepared

Floats = NDArray[np.float32]
MARGIN = 0.15  # share of the side: leaves the square inside the field of view
SIDE = 32  # of the grey image that is transformed
FREQUENCIES = np.add.outer(np.arange(SIDE), np.arange(SIDE))
BAND = (FREQUENCIES >= 3) & (FREQUENCIES <= 15)  # below: illumination; above: noise and blocks of the codec
CHUNK = 128


@dataclass(frozen=True, eq=False)
class Pixels:
    """Statistics of N images.

    Attributes:
        brightness: Mean grey value inside the field of view, (N,), 0 to 255.
        sharpness: Mean absolute Laplacian there per unit of brightness, (N,); low where an image is blurred.
        digest: SHA-256 of all pixels, (N,).
        signature: Coefficients of the cosine transform, (N, 130), not standardised.
    """

    brightness: Floats
    sharpness: Floats
    digest: NDArray[np.bytes_]
    signature: Floats

    def standardised(self) -> Floats:
        """Return signatures (N, 130) of mean 0 and std 1 over the data set, each divided by its length."""
        centred = self.signature - self.signature.mean(axis=0)
        centred /= np.maximum(centred.std(axis=0), 1e-6)
        unit: Floats = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-6)
        return unit


def read_pixels(data: Prepared, progress: Progress = QUIET) -> Pixels:
    """Read every image of a prepared folder once, in the order of the shards, and return its statistics."""
    parts = []
    with progress.track("Reading images", len(data.records), unit="images") as advance:
        for start in range(0, len(data.records), CHUNK):
            images = data.images(np.arange(start, min(start + CHUNK, len(data.records))))
            parts.append(_statistics(images))
            advance(len(images))
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Pixels(*columns)


def _statistics(images: NDArray[np.uint8]) -> tuple[Floats, Floats, NDArray[np.bytes_], Floats]:
    grey = [_inside(image) for image in images]
    inside = np.stack([np.asarray(one, np.float32) for one in grey])
    small = np.stack([np.asarray(one.resize((SIDE, SIDE), Image.Resampling.BOX), np.float32) for one in grey])
    brightness = inside.mean(axis=(1, 2))
    laplacian = (
        inside[:, :-2, 1:-1] + inside[:, 2:, 1:-1] + inside[:, 1:-1, :-2] + inside[:, 1:-1, 2:]
        - 4 * inside[:, 1:-1, 1:-1]
    )  # fmt: skip
    sharpness = np.abs(laplacian).mean(axis=(1, 2)) / np.maximum(brightness, 1)
    digest = np.array([hashlib.sha256(image).digest() for image in images], "S32")
    return brightness, sharpness, digest, dctn(small, axes=(1, 2), norm="ortho")[:, BAND]


def _inside(image: NDArray[np.uint8]) -> Image.Image:
    """Return the grey square inside the field of view of an image (S, S, 3), reduced to below 256 pixels."""
    side = len(image)
    margin = round(MARGIN * side)
    inside = np.ascontiguousarray(image[margin : side - margin, margin : side - margin])
    return Image.fromarray(inside).convert("L").reduce(max(side // 128, 1))


def detail(image: NDArray[np.uint8]) -> Floats:
    """Return the fine detail inside the field of view: the grey square of an image (S, S, 3) less its blur, flat, of length 1."""
    inside = np.asarray(_inside(image), np.float32)
    fine = (inside - gaussian_filter(inside, len(inside) / 28)).ravel()
    fine -= fine.mean()
    return fine / max(float(np.linalg.norm(fine)), 1e-6)
