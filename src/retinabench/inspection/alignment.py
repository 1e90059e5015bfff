"""Do two images show the same retina? Their fine detail is turned, mirrored, scaled and shifted onto each other.

All fundus images share a bright field of view on black, and those of one camera its rim, its shading and its dust. Only
the fine detail inside the field of view is therefore compared: the grey image less its local average, divided by its
local contrast, on a disk of fixed size. Its Fourier transform along the angle, at several radii, gives the correlation at
every rotation, mirrored or not, in one product (`spectrum`, `best_rotation`); its magnitudes do not depend on the
rotation and find likely pairs fast (`magnitudes`). `align` then searches the scale and shift that remain, and reports the
correlation over the overlap and how evenly it holds: copies correlate everywhere, two retinas that share a vessel's course
do not. Dirt on a lens is the same, everywhere, in images of different retinas. It is smaller than the arcs of the vessels:
a blur removes it and raises the correlation of copies, whose noise it removes as well.

References:
    De Castro and Morandi, Registration of translated and rotated images using finite Fourier transforms, IEEE PAMI 9 (1987).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.fft import irfft, irfft2, rfft, rfft2
from scipy.ndimage import binary_erosion, gaussian_filter, map_coordinates

from retinabench.data.preprocessing.graham import Circle, field_circle

Floats = NDArray[np.float32]
Spectrum = NDArray[np.complex64]
LARGEST, SMALLEST = 96, 48  # pixels across the disk; smaller images hold too little detail
RADII, ANGLES, FREQUENCIES = 20, 128, 32
INNER, OUTER = 0.12, 0.92  # of the radius: between them lie the rings
AVERAGE, CONTRAST = 0.04, 0.08  # of the diameter: std of the local average, and of the local contrast
SCALES = (0.94, 0.97, 1.0, 1.03, 1.06)
TURNS = (-1.4, -0.7, 0.7, 1.4)  # degrees from the best of 128 rotations, which are 2.8 apart
SHIFT = 0.1  # of the diameter
BLUR = 0.03  # of the diameter: std of the blur that leaves vessels and removes dirt
BLOCKS = 6  # along a side
DARK = 3  # in every channel: no retina


@dataclass(frozen=True)
class Alignment:
    """How an image lies on another one, and how well."""

    correlation: float  # of the fine detail over the overlap
    quarter: float  # the same in blocks of the overlap, their lower quartile
    blurred: float  # the same once both are blurred
    mirrored: bool  # whether the second image is mirrored first
    degrees: float  # its rotation, -180 to 180, clockwise
    scale: float  # its scale


def detail_of(image: NDArray[np.uint8], *, whole: bool = False) -> Floats:
    """Return the fine detail of the field of view (W, W), zero outside; `image` (S, S, 3)."""
    pil_image, side = Image.fromarray(image), len(image)
    circle = Circle(side / 2, side / 2, side / 2) if whole else field_circle(pil_image)
    width = int(np.clip(side, SMALLEST, LARGEST))
    step = 2 * circle.radius / width
    place = (step, 0, circle.x - circle.radius, 0, step, circle.y - circle.radius)

    def on_disk(one: Image.Image, how: Image.Resampling) -> Floats:
        disk = one.transform((width, width), Image.Transform.AFFINE, place, resample=how)
        return np.asarray(disk, np.float32)

    grey = on_disk(pil_image.convert("L"), Image.Resampling.BICUBIC)
    lightest = on_disk(Image.fromarray(image.max(axis=2)), Image.Resampling.NEAREST)
    along = np.arange(width) + 0.5 - width / 2
    inside = (np.hypot(along, along[:, None]) < 0.48 * width) & (lightest > DARK)
    inside = binary_erosion(inside, iterations=max(1, width // 48))
    return _normalised(grey, inside)


def _normalised(grey: Floats, inside: NDArray[np.bool_]) -> Floats:
    """Subtract the local average and divide by the local contrast, both of the pixels inside alone."""
    if not inside.any():
        return np.zeros_like(grey)
    mask, (near, wide) = inside.astype(np.float32), (AVERAGE * len(grey), CONTRAST * len(grey))
    fine = (grey - gaussian_filter(grey * mask, near) / np.maximum(gaussian_filter(mask, near), 1e-3)) * mask
    contrast = np.sqrt(gaussian_filter(fine**2, wide) / np.maximum(gaussian_filter(mask, wide), 1e-3))
    # With hardly any contrast, noise would become as strong as vessels.
    least = max(0.3 * float(np.median(contrast[inside])), 0.3)
    return np.asarray((fine / np.maximum(contrast, least)).clip(-3, 3) * mask, np.float32)


def spectrum(detail: Floats) -> Spectrum:
    """Return the Fourier coefficients along the angle of rings of a detail (W, W), (RADII, FREQUENCIES), of unit energy."""
    angle = 2 * np.pi * np.arange(ANGLES) / ANGLES
    radius = (INNER + (OUTER - INNER) * (np.arange(RADII) + 0.5) / RADII) * len(detail) / 2
    middle = len(detail) / 2 - 0.5
    y, x = middle + radius[:, None] * np.sin(angle), middle + radius[:, None] * np.cos(angle)
    rings = map_coordinates(detail, [y, x], order=1) * np.sqrt(radius)[:, None]
    found = rfft(rings, axis=1)[:, 1 : FREQUENCIES + 1]
    energy = float(np.sqrt(2 * (np.abs(found) ** 2).sum() / ANGLES))
    return np.asarray(found / max(energy, 1e-6), np.complex64)


def magnitudes(spectra: Spectrum) -> Floats:
    """Return what does not change with the rotation: logarithms of magnitudes (N, D), standardised, of length 1."""
    logs: Floats = np.abs(spectra[:, :, :24]).reshape(len(spectra), -1)
    logs /= np.float32(np.sqrt(ANGLES))
    np.log(logs + np.float32(0.002), out=logs)  # in place: of 100,000 images each copy takes 0.2 GB
    logs -= logs.mean(axis=0)
    logs /= np.maximum(logs.std(axis=0), 1e-6)
    logs /= np.maximum(np.linalg.norm(logs, axis=1, keepdims=True), 1e-6)
    return logs


def best_rotation(first: Spectrum, second: Spectrum) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Return the best rotation of each of P pairs; (P,)."""
    plain = np.einsum("prm,prm->pm", first, second.conj())
    mirrored = np.einsum("prm,prm->pm", first, second)
    padded = np.zeros((2, len(first), ANGLES // 2 + 1), np.complex64)
    padded[:, :, 1 : FREQUENCIES + 1] = plain, mirrored
    at = irfft(padded, n=ANGLES, axis=2)
    turn, best = at.argmax(axis=2), at.max(axis=2)
    flip = best[1] > best[0]
    # Mirroring maps the angle a to 180° - a.
    degrees = np.where(flip, turn[1] * 360 / ANGLES - 180, turn[0] * 360 / ANGLES)
    return best.max(axis=0), flip, np.asarray(degrees, np.float32)


def align(first: Floats, second: Floats, mirrored: bool, degrees: float) -> Alignment:
    """Align a detail with another one; `first`, `second` (W, W)."""
    waves = rfft2(first)
    moved = second[:, ::-1] if mirrored else second

    def attempt(turn: float, scale: float) -> tuple[float, float, float, Floats]:
        turned = _turned(moved, turn, scale)
        at, (down, right) = _best_shift(waves, turned)
        length = float(np.sqrt((first**2).sum() * (turned**2).sum()))
        return at / max(length, 1e-6), turn, scale, np.roll(turned, (down, right), axis=(0, 1))

    best = max((attempt(degrees, scale) for scale in SCALES), key=lambda found: found[0])
    turns = [attempt(degrees + turn, best[2]) for turn in TURNS]
    _, turn, scale, placed = max([best, *turns], key=lambda found: found[0])
    both = (first != 0) & (placed != 0)
    correlation, quarter = _correlation(first[both], placed[both]), _quarter(first, placed, both)
    blurred = [gaussian_filter(detail * both, BLUR * len(detail))[both] for detail in (first, placed)]
    return Alignment(correlation, quarter, _correlation(*blurred), mirrored, (turn + 180) % 360 - 180, scale)


def _turned(detail: Floats, degrees: float, scale: float) -> Floats:
    half, angle = len(detail) / 2, np.deg2rad(degrees)
    c, s = float(np.cos(angle)) / scale, float(np.sin(angle)) / scale
    place = (c, s, half - (c + s) * half, -s, c, half + (s - c) * half)
    image = Image.fromarray(np.ascontiguousarray(detail))
    moved = image.transform(image.size, Image.Transform.AFFINE, place, resample=Image.Resampling.BILINEAR)
    return np.asarray(moved, np.float32)


def _best_shift(waves: NDArray[np.complex64], moved: Floats) -> tuple[float, tuple[int, int]]:
    """Return the largest product of an image and a moved one among small shifts, and that shift."""
    reach = round(SHIFT * len(moved))
    steps = np.arange(-reach, reach + 1)
    products = irfft2(waves * rfft2(moved).conj(), s=moved.shape)[np.ix_(steps, steps)]
    down, right = np.unravel_index(products.argmax(), products.shape)
    return float(products[down, right]), (int(steps[down]), int(steps[right]))


def _quarter(first: Floats, placed: Floats, both: NDArray[np.bool_]) -> float:
    """Return the lower quartile of the correlations in the blocks that mostly overlap; 0 where fewer than six do."""
    edges = np.linspace(0, len(first), BLOCKS + 1).astype(int)
    found = []
    for top, bottom in pairwise(edges):
        for left, right in pairwise(edges):
            block = np.s_[top:bottom, left:right]
            if both[block].mean() > 0.6:
                found.append(_correlation(first[block][both[block]], placed[block][both[block]]))
    return float(np.percentile(found, 25)) if len(found) >= 6 else 0.0


def _correlation(first: Floats, second: Floats) -> float:
    """Return Pearson's correlation of two samples (n,), 0 where one is constant."""
    if len(first) < 2:
        return 0.0
    a, b = first - first.mean(), second - second.mean()
    return float((a * b).sum() / max(float(np.sqrt((a**2).sum() * (b**2).sum())), 1e-6))
