"""The healthy retina: pigment, choroid, optic disc, fovea, arteries and veins, in eye coordinates.

Sizes follow the textbooks at 25 degrees of visual angle per unit, about 7.3 mm of retina: disc diameter 2 mm,
disc to fovea nearly 3 disc diameters, arcade veins at the disc 0.19 mm, arteries two thirds of that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.data.synthetic.raster import Floats, Raster
from retinabench.data.synthetic.streams import stream

Array = NDArray[np.floating]
AVASCULAR_RADIUS = 0.12  # No vessel comes nearer to the fovea than this, in eye units.


@dataclass(frozen=True)
class Branches:
    """B curves of T points: points (B, T, 2), heading (B, T) in radians, radius (B, T), alive (B, T)."""

    points: Array
    heading: Array
    radius: Array
    alive: NDArray[np.bool_]

    def strokes(self, raster: Raster, calibre: Array | float, strength: Array | float) -> tuple[Array, ...]:
        """Return start, end, half calibre and strength of the living parts, as coarse as the canvas bears; `calibre`, `strength` (B, T)."""
        step = self.points[:, 1] - self.points[:, 0]
        stride = max(1, int(2.4 / (raster.scale * np.hypot(step[:, 0], step[:, 1]).mean())))
        thin = slice(None, None, stride)
        points, alive = self.points[:, thin], self.alive[:, thin]
        keep = alive[:, 1:] & alive[:, :-1]
        radius = (calibre * self.radius)[:, thin][:, 1:][keep]
        shade = np.broadcast_to(np.float32(strength), self.radius.shape)[:, thin][:, 1:][keep]
        return points[:, :-1][keep], points[:, 1:][keep], radius, shade


def draw_branches(
    raster: Raster, layer: Floats, *parts: tuple[Branches, Array | float, Array | float], softness: float = 0.0
) -> None:
    """Draw curves on one layer, with maximum where they overlap."""
    strokes = [branches.strokes(raster, calibre, strength) for branches, calibre, strength in parts]
    start, end, radius, shade = (np.concatenate(column) for column in zip(*strokes, strict=True))
    raster.strokes(layer, start, end, radius, shade, softness)


@dataclass(frozen=True)
class Vessels:
    """The generations of one tree: trunks (the temporal arcades come first), branches, twigs."""

    generations: tuple[Branches, ...]

    @property
    def trunks(self) -> Branches:
        """The eight vessels that leave the disc."""
        return self.generations[0]

    def draw(self, raster: Raster, layer: Floats, trunk_calibre: Array | float = 1.0) -> None:
        """Draw all generations; thin vessels hold less blood and are fainter; `trunk_calibre` (B, T)."""
        calibres = (trunk_calibre, 1.0, 1.0)
        draw_branches(
            raster,
            layer,
            *((b, c, np.clip(0.35 + 45 * b.radius, 0, 1)) for b, c in zip(self.generations, calibres, strict=True)),
        )


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
    """Return B curves whose heading relaxes from `heading` to `final` over the distance `bend`.

    Shapes: `start` (B, 2), `heading` (B,), `final` (B,), `bend` (B,), `length` (B,), `radius` (B,).
    """
    start, heading, final, length, radius = (np.asarray(a, np.float32) for a in (start, heading, final, length, radius))
    count = len(start)
    share = np.linspace(0, 1, points, dtype=np.float32)
    s = share * length[:, None]
    fade = np.exp(-s / np.reshape(np.float32(bend), (-1, 1)))
    course = final[:, None] + (heading - final)[:, None] * fade
    for wavelength, size in ((0.70, 0.34), (0.27, 0.30), (0.11, 0.22)):
        phase = rng.random((count, 1), dtype=np.float32)
        amplitude = np.float32(tortuosity * size) * rng.standard_normal((count, 1), dtype=np.float32)
        course += amplitude * np.sin(np.float32(2 * np.pi) * (s / np.float32(wavelength) + phase))
    step = (length / (points - 1))[:, None]
    path = np.cumsum(np.stack([np.cos(course), np.sin(course)], -1) * step[..., None], axis=1)
    path += start[:, None] - path[:, :1]
    calibre = radius[:, None] * (1 - np.float32(taper) * share)
    free = np.hypot(path[..., 0], path[..., 1]) > AVASCULAR_RADIUS * (
        1 + np.float32(0.4) * rng.random((count, 1), dtype=np.float32)
    )
    return Branches(path, course, calibre, np.logical_and.accumulate(free, axis=1))


def _divide(
    rng: np.random.Generator, parent: Branches, children: int, size: tuple[float, float], tortuosity: float, points: int
) -> Branches:
    """Let every curve give off `children` thinner branches to alternating sides."""
    count, last = parent.radius.shape
    slot = (np.arange(children) + rng.random((count, children))) / children
    at = (last * (0.10 + 0.85 * slot)).astype(int).reshape(-1)
    mother = np.repeat(np.arange(count), children)
    side = np.where((np.arange(children) + rng.integers(0, 2, (count, 1))) % 2 == 0, 1.0, -1.0).reshape(-1)
    course = parent.heading[mother, at]
    angle = side * rng.uniform(0.5, 1.2, len(at))
    length = rng.uniform(*size, len(at)) * np.clip(parent.radius[mother, 0] / 0.010, 0.3, 1.1)
    radius = np.maximum(parent.radius[mother, at] * rng.uniform(0.45, 0.75, len(at)), 0.0022)
    young = grow(
        rng, parent.points[mother, at], course + angle, course + 0.55 * angle + rng.normal(0, 0.45, len(at)), 0.22,
        length, radius, 1.3 * tortuosity, points, taper=0.75,
    )  # fmt: skip
    return Branches(young.points, young.heading, young.radius, young.alive & parent.alive[mother, at][:, None])


def grow_vessels(
    rng: np.random.Generator, disc: Array, disc_radius: float, tortuosity: float
) -> tuple[Vessels, Vessels]:
    return _grow_tree(rng, disc, disc_radius, tortuosity, 0.0092), _grow_tree(
        rng, disc, disc_radius, 0.8 * tortuosity, 0.0130
    )


def _grow_tree(rng: np.random.Generator, disc: Array, disc_radius: float, tortuosity: float, radius: float) -> Vessels:
    """Grow one tree: four arcades, four lesser trunks, and two generations of branches."""
    jitter = rng.standard_normal((8, 4))
    up = np.array([1, -1, 1, -1, 1, -1, 1, -1.0])
    heading = up * (np.array([1.42, 1.42, 2.0, 2.0, 0.45, 0.45, 2.9, 1.70]) + 0.17 * jitter[:, 0])
    final = up * (np.array([-0.28, -0.28, 2.5, 2.5, 0.05, 0.05, 3.1, 1.35]) + 0.15 * jitter[:, 1])
    bend = np.array([0.70, 0.70, 0.5, 0.5, 0.25, 0.25, 0.3, 0.5]) * np.exp(0.13 * jitter[:, 2])
    length = np.array([2.1, 2.1, 0.8, 0.8, 0.55, 0.55, 0.5, 0.9])
    calibre = radius * np.array([1, 1, 0.70, 0.70, 0.36, 0.36, 0.42, 0.48]) * np.exp(0.10 * jitter[:, 3])
    offset = 0.06 * rng.standard_normal((8, 2))
    start = disc + disc_radius * (np.array([-0.12, 0.0]) + 0.10 * up[:, None] * np.array([0, 1]) + offset)
    trunks = grow(rng, start, heading, final, bend, length, calibre, tortuosity, points=140, taper=0.68)
    branches = _divide(rng, trunks, 7, (0.35, 0.95), tortuosity, 44)
    twigs = _divide(rng, branches, 2, (0.14, 0.46), 1.2 * tortuosity, 16)
    return Vessels((trunks, branches, twigs))


def grow_choroid(rng: np.random.Generator) -> Branches:
    """Grow the wide pale choroidal vessels that shine through a thinly pigmented fundus."""
    count = 170
    start = rng.uniform(-1.3, 1.1, (count, 2))
    toward = np.arctan2(start[:, 1], start[:, 0] + 0.3) + rng.normal(0, 0.45, count)
    return grow(
        rng, start, toward, toward + rng.normal(0, 0.6, count), 0.4, rng.uniform(0.3, 0.8, count),
        rng.uniform(0.007, 0.015, count), 1.2, points=32, taper=0.4,
    )  # fmt: skip


_PALE = np.array([210, 110, 36])
_DARK = np.array([142, 62, 17])


@dataclass(frozen=True)
class Eye:
    """One eye: what a patient's two eyes share is drawn once per patient, the rest per eye."""

    pigment: float  # 0 pale to 1 dark
    tessellation: float  # how much the choroidal vessels show
    disc: NDArray[np.float64]  # (2,) centre
    disc_radius: float
    cup: float  # cup-to-disc ratio
    macula: float  # strength of the macular pigment
    sheen: float  # how much the nerve fibres shine, as they do in the young
    arteries: Vessels
    veins: Vessels


def grow_eye(seed: int, population: str, index: int) -> Eye:
    """Return the eye of image `index`: fellow eyes share most of the variance of every trait."""
    shared = stream("patient_anatomy", seed, population, index // 2)
    own = stream("eye_anatomy", seed, population, index)
    traits = 0.9 * shared.standard_normal(9) + 0.44 * own.standard_normal(9)
    unit = 1 / (1 + np.exp(-1.6 * traits))  # roughly uniform on 0-1
    radius = 0.148 * (1 + 0.07 * traits[2])
    disc = np.array([-0.80 + 0.035 * traits[3], 0.06 + 0.03 * traits[4]])
    arteries, veins = grow_vessels(own, disc, radius, tortuosity=0.25 + 0.55 * unit[5])
    return Eye(
        pigment=float(unit[0]), tessellation=float(np.clip(1.7 * unit[1] - 0.7, 0, 1)), disc=disc,
        disc_radius=float(radius), cup=float(0.28 + 0.36 * unit[6]), macula=float(0.5 + 0.6 * unit[7]),
        sheen=float(unit[8] ** 2), arteries=arteries, veins=veins,
    )  # fmt: skip


def paint_background(raster: Raster, eye: Eye, texture: np.random.Generator) -> Floats:
    """Return the light (3, side, side) that the retina without its vessels reflects, in grey levels."""
    mottle = raster.texture(0.05 * texture.standard_normal((9, 9)))
    mottle += raster.texture(0.045 * texture.standard_normal((28, 28)))
    mottle += raster.texture(0.05 * texture.standard_normal((120, 120)))
    fovea = raster.bump((0, 0), 0.17)
    density = mottle + np.float32(0.28 * eye.macula) * fovea
    density += np.float32(0.22 * eye.macula) * raster.bump((0, 0), 0.06)
    density += np.float32(0.10) * raster.bump((0.1, 0), 0.6)
    base = _PALE + (_DARK - _PALE) * eye.pigment
    if eye.tessellation > 0.02:
        where = np.clip(0.5 + raster.texture(0.7 * texture.standard_normal((8, 8))), 0, 1) * (1 - fovea)
        density += np.float32(eye.tessellation) * where * (np.float32(0.10) - _choroid(raster, texture))
    glow = raster.bump((eye.disc[0] + 0.02, eye.disc[1]), 0.24, 0.32)
    _add_fibres(raster, eye, glow, texture)
    hue = raster.texture(0.06 * texture.standard_normal((7, 7)))  # redder or yellower by places
    retina = np.empty((3, raster.side, raster.side), np.float32)
    for c, (absorption, sheen) in enumerate(((0.8, 0.10), (1.15, 0.22), (1.3, 0.30))):
        np.exp(density * np.float32(-absorption) + np.float32(c - 1) * hue, out=retina[c])
        retina[c] *= np.float32(base[c])
        retina[c] *= 1 + np.float32(sheen) * glow
    _paint_disc(raster, eye, retina)
    return retina


def _add_fibres(raster: Raster, eye: Eye, glow: Floats, rng: np.random.Generator) -> None:
    """Streak the light around the disc along the nerve fibres, most where they are thick: above and below."""
    table = np.convolve(rng.standard_normal(724), [0.5, 1, 0.5], "valid").astype(np.float32)
    window = raster.window((eye.disc[0], eye.disc[1]), 0.75)
    if window is None:
        return
    dx, dy = raster.x[window[1]] - eye.disc[0], (raster.y[window[0]] - eye.disc[1])[:, None]
    squared = dx * dx + dy * dy
    bent = np.arctan2(dy, dx - np.float32(0.25) * dy * dy)  # temporal fibres arch towards the raphe
    streak = table[((bent + np.float32(np.pi)) * np.float32(720 / (2 * np.pi))).astype(np.intp)]
    thick = np.abs(dy) * np.exp(squared * np.float32(-4.5))
    glow[window] += np.float32(eye.sheen) * thick * (np.float32(1.6) + np.float32(0.7) * streak)


def _choroid(raster: Raster, rng: np.random.Generator) -> Floats:
    """Return how much less the pigment above the choroidal vessels (side, side) absorbs: soft bands."""
    vessels = grow_choroid(rng)
    # They rise from the deep and sink again, so they fade at both ends.
    rise = np.sin(np.linspace(0, np.pi, vessels.radius.shape[1])) ** 0.7
    layer = raster.layer()
    draw_branches(raster, layer, (vessels, 0.62, rise), softness=0.6)
    return np.float32(0.19) * raster.inside(layer)


def disc_cover(raster: Raster, eye: Eye, rows: slice, columns: slice, share: float = 1.0) -> Floats:
    """Return the cover of the optic disc, or of its cup, on a window of the canvas."""
    shift = 0.10 * (1 - share)  # the cup lies a little to the temporal side
    dx = (raster.x[columns] - eye.disc[0] - shift * eye.disc_radius) / (0.93 * share * eye.disc_radius)
    dy = (raster.y[rows] - eye.disc[1]) / (1.05 * share * eye.disc_radius)
    edge = 0.07 + (0.33 if share < 1 else 0.0)
    cover: Floats = np.clip(0.5 + (1 - np.hypot(dx, dy[:, None])) / (2 * edge), 0, 1).astype(np.float32)
    return cover


def _paint_disc(raster: Raster, eye: Eye, retina: Floats) -> None:
    window = raster.window((eye.disc[0], eye.disc[1]), 1.5 * eye.disc_radius)
    if window is None:
        return
    rim, cup = disc_cover(raster, eye, *window), disc_cover(raster, eye, *window, eye.cup)
    temporal = np.clip(0.5 + 0.5 * (raster.x[window[1]] - eye.disc[0]) / eye.disc_radius, 0, 1)
    bright = 1 - 0.18 * eye.pigment
    for c, (nasal, pale, white) in enumerate(((270, 286, 302), (124, 164, 222), (38, 58, 104))):
        colour = bright * (nasal + (pale - nasal) * temporal)
        patch = retina[c][window]
        patch += rim * (colour.astype(np.float32) - patch)
        patch += 0.92 * cup * (np.float32(bright * white) - patch)
