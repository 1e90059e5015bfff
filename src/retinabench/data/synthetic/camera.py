"""Two cameras that take images of a retina.

`in_domain` is a good table-top camera in the manner of the Kowa VX-10a that took IDRiD: 46 to 50 degrees,
orange-red colours, mostly in focus. `shifted` is a mixed park of older and portable cameras, in the manner of
APTOS: 36 to 50 degrees, often cropped into the field, a greenish-yellow or pale cast, softer, hazier, with
dust, stray flash light and compression.

Not modelled: wavelength-dependent optics, pupil-position geometry, distortion, eyelids and lashes, real JPEG.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from retinabench.data.preprocessing.corruption import specks_shadow
from retinabench.data.synthetic.raster import Floats, Raster
from retinabench.data.synthetic.streams import Population

EDGE_CLEARANCE = 0.05  # Lesions keep this distance from the rim and from the cut of the frame, in field-of-view radii.


def take_settings(population: Population, visit: np.random.Generator, image: np.random.Generator) -> dict[str, float]:
    v, p, u = visit.standard_normal(8), image.standard_normal(8), image.random(8)
    good = population == "in_domain"
    if good:
        field, fill, cut = 48 + 1.0 * np.clip(v[0], -2, 2), 0.985, 1.0 if visit.random() < 0.5 else 0.85
        exposure = 0.12 + 0.13 * v[1] + 0.07 * p[1]
        cast = np.array([0.03 * v[2], 0.10 * v[3], -0.15 + 0.45 * v[4]])
        focus = 0.0035 + 0.018 * u[0] ** 3
        haze, reflex = 0.02 + 0.20 * u[1] ** 3, 0.5 * u[2] if u[3] < 0.25 else 0.0
    else:
        field, fill, cut = (36 + 14 * visit.random(), 1.0 + 0.28 * visit.random() ** 2, 0.75 + 0.25 * visit.random())
        exposure = 0.02 + 0.22 * v[1] + 0.10 * p[1]
        cast = np.array([-0.16 + 0.08 * v[2], 0.06 + 0.10 * v[3], 0.25 + 0.35 * v[4]])
        focus = 0.011 + 0.032 * u[0] ** 2
        haze, reflex = 0.08 + 0.32 * u[1] ** 2, 0.9 * u[2] if u[3] < 0.5 else 0.0
    gains = np.exp(exposure + cast)
    return {
        "field_degrees": float(field),
        "fill": float(fill),
        "cut": float(cut),
        "gaze_x": float(-0.17 + 0.07 * np.clip(p[2], -2, 2)),
        "gaze_y": float(0.06 * np.clip(p[3], -2, 2)),
        "exposure": float(np.exp(exposure)),
        "red": float(gains[0]),
        "green": float(gains[1]),
        "blue": float(gains[2]),
        "focus": float(focus),
        "fall_off": float((0.30 if good else 0.40) + 0.07 * np.clip(p[4], -2, 2)),
        "light_x": float(0.22 * np.clip(p[5], -2, 2)),
        "light_y": float(0.22 * np.clip(p[6], -2, 2)),
        "haze": float(haze),
        "reflex": float(reflex),
        "reflex_angle": float(2 * np.pi * u[4]),
        "dust": float(int(4 * u[5] ** 3) if good else int(10 * u[5])),
        "noise": 2.0 if good else float(3 + 4 * u[6]),
        "compression": 0.0 if good else float(0.5 + 2.5 * u[7]),
        "notch": float(good),
        "sharpening": 0.0 if good else float(max(0.0, 0.5 * v[5])),
    }


def visible(points: NDArray[np.floating], camera: Mapping[str, float]) -> NDArray[np.bool_]:
    """Return which eye coordinates (..., 2) are well within the visible field."""
    gaze = np.array([camera["gaze_x"], camera["gaze_y"]])
    place = np.abs(points - gaze) * (50 / camera["field_degrees"])
    half = 1 / camera["fill"] - EDGE_CLEARANCE
    within: NDArray[np.bool_] = (
        (np.hypot(place[..., 0], place[..., 1]) < 1 - EDGE_CLEARANCE)
        & (place[..., 0] < half)
        & (place[..., 1] < min(half, camera["cut"] - EDGE_CLEARANCE))
    )
    return within


def field_of_view(raster: Raster, camera: Mapping[str, float]) -> Floats:
    """Return the share (size, size) of each final pixel that lies in the field of view."""
    steps = (np.arange(raster.size, dtype=np.float32) + 0.5) * (2 / raster.size) - 1
    steps /= np.float32(camera["fill"])
    pixel = np.float32(2 / raster.size / camera["fill"])
    disc = np.clip(0.5 + (1 - np.hypot(steps, steps[:, None])) / pixel, 0, 1)
    band = np.clip(0.5 + (camera["cut"] - np.abs(steps)) / pixel, 0, 1)
    if camera["notch"]:
        u = np.float32(0.87) * steps - np.float32(0.5) * steps[:, None]  # outward, 30 degrees above the horizon
        v = np.float32(0.5) * steps + np.float32(0.87) * steps[:, None]
        tooth = np.minimum(1.03 - u + 0.3 * (v % 0.05), 0.05 - np.abs(v))
        disc = np.maximum(disc, np.clip(0.5 + tooth / pixel, 0, 1) * (u > 0.5))
    share: Floats = (disc * band[:, None]).astype(np.float32)
    return share


def optics(raster: Raster, blur: float) -> Floats:
    """Return (size, side): Gaussian blur of std `blur` field radii, then the mean over each pixel."""
    factor = raster.side // raster.size
    sigma = np.float32(blur * raster.scale * raster.field_radius)
    edges = np.arange(0, raster.side + 1, factor, dtype=np.float32)
    grid = np.arange(raster.side, dtype=np.float32) + 0.5
    share = np.diff(ndtr((edges - grid[:, None]) / sigma), axis=1).T
    matrix: Floats = (share / share.sum(1, keepdims=True)).astype(np.float32)
    return matrix


def _shading(raster: Raster, camera: Mapping[str, float], texture: np.random.Generator) -> Floats:
    """Return the light (side, side) that falls on each place: fall-off from its centre, and unevenness."""
    across = (raster.field - np.float32(camera["light_x"])) ** 2
    down = (raster.field - np.float32(camera["light_y"])) ** 2
    light: Floats = 1 - np.float32(camera["fall_off"]) * (across + down[:, None])
    light += raster.texture(0.10 * texture.standard_normal((6, 6)))
    return np.maximum(light, np.float32(0.08))


def expose(
    raster: Raster,
    retina: Floats,
    camera: Mapping[str, float],
    texture: np.random.Generator,
    noise: np.random.Generator,
) -> NDArray[np.uint8]:
    """Return the image (size, size, 3), RGB, of the light that the retina reflects."""
    light = _shading(raster, camera, texture)
    lens = optics(raster, camera["focus"])
    gains = np.array([camera["red"], camera["green"], camera["blue"]], np.float32)
    image = np.stack([lens @ (channel * light) @ lens.T for channel in retina]) * gains[:, None, None]
    size = raster.size
    steps = ((np.arange(size, dtype=np.float32) + 0.5) * (2 / size) - 1) / np.float32(camera["fill"])
    radius = np.hypot(steps, steps[:, None])
    if camera["sharpening"] > 0:
        wide = optics(raster, 0.03)
        grey = np.tensordot(gains / 3, retina, 1) * light
        image += np.float32(camera["sharpening"]) * (image.mean(0) - wide @ grey @ wide.T)
    veil = np.float32(camera["haze"]) * (0.45 + 0.55 * radius**2)
    veil_colour = np.array([150, 125, 95], np.float32) * np.float32(camera["exposure"])
    image += veil * (veil_colour[:, None, None] - 0.8 * image)
    if camera["reflex"] > 0:
        image += _reflex(steps, radius, camera)
    image *= _dust(steps, camera, texture)
    if camera["compression"] > 0:
        image += _blocks(size, camera["compression"], texture)
    grain = noise.standard_normal(image.shape, dtype=np.float32) * np.float32(camera["noise"] * size / 512)
    image += grain
    image *= field_of_view(raster, camera)
    image += 1.5
    levels = np.clip(image + 0.5, 0, 255).astype(np.uint8)
    return np.ascontiguousarray(levels.transpose(1, 2, 0))


def _reflex(steps: Floats, radius: Floats, camera: Mapping[str, float]) -> Floats:
    """Crescent of stray flash light at the rim (3, size, size)."""
    angle = camera["reflex_angle"]
    toward = steps * np.float32(np.cos(angle)) + steps[:, None] * np.float32(np.sin(angle))
    crescent = np.exp(-0.5 * ((radius - 1.02) / 0.09) ** 2) * np.clip(toward / 0.6, 0, 1) ** 2
    colour = np.array([190, 140, 80], np.float32) * np.float32(camera["reflex"])
    light: Floats = colour[:, None, None] * crescent.astype(np.float32)
    return light


def _dust(steps: Floats, camera: Mapping[str, float], texture: np.random.Generator) -> Floats:
    """Shadow (size, size) of specks on the lens: round, faint and out of focus."""
    x, y, width, depth = texture.random((4, int(camera["dust"]), 1), dtype=np.float32)
    place = np.stack([1.6 * (x - 0.5), 1.6 * (y - 0.5)])
    return specks_shadow(steps, steps, place, 0.008 + 0.022 * width, 0.12 + 0.25 * depth)


def _blocks(size: int, strength: float, texture: np.random.Generator) -> Floats:
    """Pattern (3, size, size) of 64 x 64 blocks, as strong compression leaves it."""
    levels = np.float32(strength) * texture.standard_normal((64, 64, 3), dtype=np.float32)
    mean = _block_shares(size)
    return np.stack([mean @ levels[..., c] @ mean.T for c in range(3)])


@lru_cache(maxsize=16)
def _block_shares(size: int) -> Floats:
    """Return (size, 64): the share of each pixel that each of 64 blocks takes up."""
    covered = np.clip(np.linspace(0, 64, size + 1)[:, None] - np.arange(64), 0, 1)
    return (np.diff(covered, axis=0) * (size / 64)).astype(np.float32)
