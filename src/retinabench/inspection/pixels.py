"""One look at every prepared picture: brightness, sharpness, and a signature by which copies are found.

The signature follows perceptual hashing (Zauner 2010): low frequencies of the cosine transform of a small grey picture.
All photographs of the retina share a bright disc on black, which would drown what differs: the transform sees the
square inside the disc only, without its lowest frequencies, and each coefficient is standardised over the data set.
Signatures of unrelated pictures are then nearly orthogonal; those of copies nearly equal, whatever the brightness.
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
MARGIN = 0.15  # of the side: leaves the square inside the disc, half the diameter times the root of 2
SIDE = 32  # of the grey picture that is transformed
FREQUENCIES = np.add.outer(np.arange(SIDE), np.arange(SIDE))
BAND = (FREQUENCIES >= 3) & (FREQUENCIES <= 15)  # below: illumination; above: noise and the codec's blocks
CHUNK = 128


@dataclass(frozen=True, eq=False)
class Pixels:
    """What was seen of N pictures.

    brightness: (N,) mean grey value inside the disc, 0 to 255. sharpness: (N,) mean absolute Laplacian there per unit
    of brightness; low where a picture is blurred. digest: (N,) of all bytes. signature: (N, 130), not standardised.
    """

    brightness: Floats
    sharpness: Floats
    digest: NDArray[np.bytes_]
    signature: Floats

    def standardised(self) -> Floats:
        """Return signatures of mean 0 and deviation 1 over the data set, each divided by its length."""
        spread = self.signature - self.signature.mean(axis=0)
        spread /= np.maximum(spread.std(axis=0), 1e-6)
        unit: Floats = spread / np.maximum(np.linalg.norm(spread, axis=1, keepdims=True), 1e-6)
        return unit


def look(data: Prepared, progress: Progress = QUIET) -> Pixels:
    """Look at every picture of a prepared folder once, in the order of the shards."""
    parts = []
    with progress.track("Looking at the pictures", len(data.records), unit="images") as advance:
        for start in range(0, len(data.records), CHUNK):
            pictures = data.images(np.arange(start, min(start + CHUNK, len(data.records))))
            parts.append(_look(pictures))
            advance(len(pictures))
    columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Pixels(*columns)


def _look(pictures: NDArray[np.uint8]) -> tuple[Floats, Floats, NDArray[np.bytes_], Floats]:
    grey = [_inside(picture) for picture in pictures]
    inside = np.stack([np.asarray(one, np.float32) for one in grey])
    small = np.stack([np.asarray(one.resize((SIDE, SIDE), Image.Resampling.BOX), np.float32) for one in grey])
    brightness = inside.mean(axis=(1, 2))
    laplacian = (
        inside[:, :-2, 1:-1] + inside[:, 2:, 1:-1] + inside[:, 1:-1, :-2] + inside[:, 1:-1, 2:]
        - 4 * inside[:, 1:-1, 1:-1]
    )  # fmt: skip
    sharpness = np.abs(laplacian).mean(axis=(1, 2)) / np.maximum(brightness, 1)
    digest = np.array([hashlib.sha256(picture).digest() for picture in pictures], "S32")
    return brightness, sharpness, digest, dctn(small, axes=(1, 2), norm="ortho")[:, BAND]


def _inside(picture: NDArray[np.uint8]) -> Image.Image:
    """Return the grey square inside the disc of a picture (S, S, 3), reduced to below 256 pixels."""
    side = len(picture)
    margin = round(MARGIN * side)
    inside = np.ascontiguousarray(picture[margin : side - margin, margin : side - margin])
    return Image.fromarray(inside).convert("L").reduce(max(side // 128, 1))


def detail(picture: NDArray[np.uint8]) -> Floats:
    """Return what vessels and lesions draw inside the disc: the grey square less its blur, flat, of length 1."""
    inside = np.asarray(_inside(picture), np.float32)
    fine = (inside - gaussian_filter(inside, len(inside) / 28)).ravel()
    fine -= fine.mean()
    return fine / max(float(np.linalg.norm(fine)), 1e-6)
