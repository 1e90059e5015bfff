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
from retinabench.data.synthetic.vessels import Vessels, draw_branches, grow_choroid, grow_vessels

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
        pigment=float(unit[0]),
        tessellation=float(np.clip(1.7 * unit[1] - 0.7, 0, 1)),
        disc=disc,
        disc_radius=float(radius),
        cup=float(0.28 + 0.36 * unit[6]),
        macula=float(0.5 + 0.6 * unit[7]),
        sheen=float(unit[8] ** 2),
        arteries=arteries,
        veins=veins,
    )


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
    """Paint rim and cup over the background, and the pigment ring around them."""
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
