"""Vessels: a tree of arteries and veins that leaves the disc, arches around the fovea and divides; the choroid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.data.synthetic.raster import Floats, Raster

Array = NDArray[np.float64]

AVASCULAR_RADIUS = 0.12
"""No vessel comes nearer to the fovea than this, in eye units."""


@dataclass(frozen=True)
class Branches:
    """B curves of T points: points (B, T, 2), heading (B, T) in radians, radius (B, T), alive (B, T)."""

    points: Array
    heading: Array
    radius: Array
    alive: NDArray[np.bool_]

    def draw(self, raster: Raster, layer: Floats, radius: Array | None = None, strength: Array | float = 1.0) -> None:
        """Draw the living part of every curve, as coarse as the canvas allows."""
        reach = np.hypot(*(self.points[0, 1] - self.points[0, 0])) * raster.scale
        stride = max(1, int(1.6 / max(reach, 1e-9)))
        radius = self.radius if radius is None else radius
        thin = slice(None, None, stride)
        points, radius, alive = self.points[:, thin], radius[:, thin], self.alive[:, thin]
        keep = alive[:, 1:] & alive[:, :-1]
        strength = np.broadcast_to(np.asarray(strength), self.alive.shape)[:, thin][:, 1:][keep]
        raster.strokes(layer, points[:, :-1][keep], points[:, 1:][keep], radius[:, 1:][keep], strength)


@dataclass(frozen=True)
class Vessels:
    """The generations of one tree: trunks first (superotemporal, inferotemporal, superonasal, inferonasal, ...)."""

    generations: tuple[Branches, ...]

    def draw(self, raster: Raster, layer: Floats, calibre: float = 1.0, trunk_radius: Array | None = None) -> None:
        """Draw all generations at `calibre` times their radius; thin vessels hold less blood and are fainter."""
        for branches in self.generations:
            radius = branches.radius
            if trunk_radius is not None and branches is self.generations[0]:
                radius = trunk_radius
            strength = np.clip(0.35 + 45 * branches.radius, 0, 1)
            branches.draw(raster, layer, calibre * radius, strength)


def grow(
    rng: np.random.Generator,
    start: Array,
    heading: Array,
    final: Array,
    bend: Array | float,
    length: Array,
    radius: Array,
    tortuosity: float,
    points: int,
    taper: float = 0.5,
) -> Branches:
    """Grow B curves whose heading relaxes from `heading` to `final` (B,) over the distance `bend`, with wiggles."""
    count = len(start)
    share = np.linspace(0, 1, points)
    s = share * length[:, None]
    fade = np.exp(-s / np.reshape(bend, (-1, 1)))
    course = final[:, None] + (heading - final)[:, None] * fade
    for wavelength, size in ((0.55, 0.30), (0.21, 0.26), (0.09, 0.20)):
        phase, amplitude = rng.random((count, 1)), rng.standard_normal((count, 1))
        course = course + tortuosity * size * amplitude * np.sin(2 * np.pi * (s / wavelength + phase))
    step = (length / (points - 1))[:, None]
    path = np.cumsum(np.stack([np.cos(course), np.sin(course)], -1) * step[..., None], axis=1)
    path += start[:, None] - path[:, :1]
    calibre = radius[:, None] * (1 - taper * share)
    free = np.hypot(path[..., 0], path[..., 1]) > AVASCULAR_RADIUS * (1 + 0.4 * rng.random((count, 1)))
    return Branches(path, course, calibre, np.logical_and.accumulate(free, axis=1))


def divide(
    rng: np.random.Generator, parent: Branches, children: int, size: tuple[float, float], tortuosity: float, points: int
) -> Branches:
    """Let every curve give off `children` branches to alternating sides, by Murray's law thinner than itself."""
    count, last = parent.radius.shape
    slot = (np.arange(children) + rng.random((count, children))) / children
    at = (last * (0.10 + 0.85 * slot)).astype(int).reshape(-1)
    mother = np.repeat(np.arange(count), children)
    side = np.where((np.arange(children) + rng.integers(0, 2, (count, 1))) % 2 == 0, 1.0, -1.0).reshape(-1)
    course = parent.heading[mother, at]
    angle = side * rng.uniform(0.5, 1.15, len(at))
    length = rng.uniform(*size, len(at)) * np.clip(parent.radius[mother, 0] / 0.010, 0.5, 1.1)
    radius = np.maximum(parent.radius[mother, at] * rng.uniform(0.45, 0.75, len(at)), 0.0022)
    young = grow(
        rng,
        parent.points[mother, at],
        course + angle,
        course + 0.75 * angle + rng.normal(0, 0.25, len(at)),
        0.15,
        length,
        radius,
        1.3 * tortuosity,
        points,
    )
    return Branches(young.points, young.heading, young.radius, young.alive & parent.alive[mother, at][:, None])


def grow_vessels(
    rng: np.random.Generator, disc: Array, disc_radius: float, tortuosity: float
) -> tuple[Vessels, Vessels]:
    """Grow the arteries and the veins of an eye."""
    return _grow_tree(rng, disc, disc_radius, tortuosity, 0.0095), _grow_tree(rng, disc, disc_radius, 0.8 * tortuosity, 0.0140)


def _grow_tree(rng: np.random.Generator, disc: Array, disc_radius: float, tortuosity: float, radius: float) -> Vessels:
    """Grow one tree: four arcades, four lesser trunks, and two generations of branches."""
    jitter = rng.standard_normal((8, 4))
    up = np.array([1, -1, 1, -1, 1, -1, 1, -1.0])
    heading = up * (np.array([1.15, 1.15, 2.0, 2.0, 0.45, 0.45, 2.8, 1.65]) + 0.16 * jitter[:, 0])
    final = up * (np.array([-0.12, -0.12, 2.5, 2.5, 0.05, 0.05, 3.0, 1.35]) + 0.14 * jitter[:, 1])
    bend = np.array([0.52, 0.52, 0.5, 0.5, 0.25, 0.25, 0.3, 0.5]) * np.exp(0.12 * jitter[:, 2])
    length = np.array([2.0, 2.0, 0.8, 0.8, 0.55, 0.55, 0.5, 0.9])
    calibre = radius * np.array([1, 1, 0.72, 0.72, 0.36, 0.36, 0.45, 0.5]) * np.exp(0.10 * jitter[:, 3])
    start = disc + disc_radius * (np.array([-0.12, 0.0]) + 0.10 * rng.standard_normal((8, 2)))
    trunks = grow(rng, start, heading, final, bend, length, calibre, tortuosity, points=140)
    branches = divide(rng, trunks, 7, (0.30, 0.85), tortuosity, 56)
    twigs = divide(rng, branches, 2, (0.12, 0.40), tortuosity, 24)
    return Vessels((trunks, branches, twigs))


def grow_choroid(rng: np.random.Generator) -> Branches:
    """Grow the wide pale choroidal vessels that shine through a thinly pigmented fundus."""
    count = 70
    start = rng.uniform(-1.3, 1.1, (count, 2))
    toward = np.arctan2(start[:, 1], start[:, 0] + 0.3) + rng.normal(0, 0.5, count)
    return grow(
        rng,
        start,
        toward,
        toward + rng.normal(0, 0.5, count),
        0.4,
        rng.uniform(0.4, 0.9, count),
        rng.uniform(0.010, 0.022, count),
        1.4,
        points=32,
        taper=0.3,
    )
