"""Lesions of diabetic retinopathy: their appearance, and where they lie.

Every kind is drawn on a layer of its own, whose values are the share of the pixel that the lesion covers, so
its mask is known. Not modelled: intraretinal microvascular abnormalities, macular oedema without exudates,
laser scars, fibrous tissue and detachment, and any other disease.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from retinabench.data.synthetic.anatomy import Array, Eye, Vessels, draw_branches, grow
from retinabench.data.synthetic.camera import visible
from retinabench.data.synthetic.raster import Floats, Raster

Placed = dict[str, NDArray[np.floating]]  # Lesion name to the positions (n, 2) of its centres in eye coordinates.


def place(counts: Mapping[str, int], eye: Eye, camera: Mapping[str, float], rng: np.random.Generator) -> Placed:
    """Choose and return the centre of every lesion, all within the visible field: {name: (count, 2)}."""
    placed: Placed = {}
    severe = counts["blot_haemorrhage"] + counts["flame_haemorrhage"] >= 80
    for name in ("microaneurysm", "blot_haemorrhage", "flame_haemorrhage", "cotton_wool_spot"):
        in_quadrants = severe and name.endswith("haemorrhage")
        placed[name] = _scatter(counts[name], eye, camera, rng, quadrants=in_quadrants)
    placed["hard_exudate"] = _exudates(counts["hard_exudate"], eye, camera, rng)
    placed["venous_beading"] = _on_arcades(counts["venous_beading"], eye, camera)
    placed["new_vessels"] = _near_vessels(counts["new_vessels"], eye, camera, rng)
    placed["preretinal_haemorrhage"] = _scatter(counts["preretinal_haemorrhage"], eye, camera, rng, reach=0.6)
    placed["vitreous_haemorrhage"] = _scatter(counts["vitreous_haemorrhage"], eye, camera, rng, reach=0.6)
    return placed


def _scatter(
    count: int,
    eye: Eye,
    camera: Mapping[str, float],
    rng: np.random.Generator,
    *,
    quadrants: bool = False,
    reach: float = 1.0,
) -> Array:
    """Draw `count` places uniform in the visible field, off the disc, optionally by turns in quadrants."""
    centre = np.array([camera["gaze_x"], camera["gaze_y"]])
    radius = reach * camera["field_degrees"] / 50
    found = np.empty((0, 2))
    quadrant = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
    while len(found) < count:
        offset = radius * rng.uniform(-1, 1, (6 * count + 16, 2))
        if quadrants:
            offset = np.abs(offset) * quadrant[np.arange(len(offset)) % 4]
        points = centre + offset
        off_disc = np.hypot(*(points - eye.disc).T) > 1.3 * eye.disc_radius
        good = visible(points, camera) & off_disc & (np.hypot(*offset.T) < radius)
        if quadrants:
            by_turns = [points[i::4][good[i::4]] for i in range(4)]
            rounds = min(len(p) for p in by_turns)
            points = np.stack([p[:rounds] for p in by_turns], 1).reshape(-1, 2)
        else:
            points = points[good]
        found = np.concatenate([found, points])
    return found[:count]


def _exudates(count: int, eye: Eye, camera: Mapping[str, float], rng: np.random.Generator) -> Array:
    """Draw deposits in one to four clusters, mostly around the macula; some form a ring (circinate)."""
    if count == 0:
        return np.empty((0, 2))
    clusters = min(int(rng.integers(1, 5)), 1 + count // 12)
    centres = _scatter(clusters, eye, camera, rng, reach=0.65)
    member = rng.choice(clusters, count, p=rng.dirichlet(np.full(clusters, 2.0)))
    angle = rng.uniform(0, 2 * np.pi, count)
    ring = rng.random(clusters) < 0.35
    size = rng.uniform(0.05, 0.13, clusters)[member]
    distance = np.where(ring[member], 1 + 0.15 * rng.standard_normal(count), np.abs(rng.standard_normal(count)))
    offset = (size * np.minimum(distance, 1.8))[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    for _ in range(3):  # draw back what falls out of the field or on the disc
        points = centres[member] + offset
        off_disc = np.hypot(*(points - eye.disc).T) > eye.disc_radius
        offset[~(visible(points, camera) & off_disc)] *= 0.4
    deposits: Array = centres[member] + offset
    return deposits


def _on_arcades(count: int, eye: Eye, camera: Mapping[str, float]) -> Array:
    """Take a visible place about half a unit along each of the first `count` venous trunks in view."""
    places: list[Array] = []
    for trunk in eye.veins.trunks.points:
        if len(places) == count:
            break
        seen = np.flatnonzero(visible(trunk, camera))
        if len(seen):
            places.append(trunk[seen[np.argmin(np.abs(seen - 35))]])
    return np.reshape(places, (-1, 2))


def _near_vessels(count: int, eye: Eye, camera: Mapping[str, float], rng: np.random.Generator) -> Array:
    """Draw the roots of new vessels: at the disc, or along the veins that leave it to the temporal side."""
    trunk = eye.veins.trunks.points[[0, 1, 4, 5]].reshape(-1, 2)
    seen = trunk[visible(trunk, camera) & (np.hypot(*(trunk - eye.disc).T) > 0.3)]
    roots = np.array(seen[rng.integers(0, len(seen), count)], dtype=np.float64)
    at_disc = rng.random(count) < 0.4
    angle = rng.uniform(0, 2 * np.pi, count)
    disc = eye.disc + 0.5 * eye.disc_radius * np.stack([np.cos(angle), np.sin(angle)], 1)
    at_disc &= visible(disc, camera)
    roots[at_disc] = disc[at_disc]
    return roots


# Reflected light in grey levels of what covers the retina, and how opaque it is.
COLOURS: dict[str, tuple[tuple[float, float, float], float]] = {
    "hard_exudate": ((244, 204, 82), 0.88),
    "cotton_wool_spot": ((226, 176, 98), 0.75),
}

# Share of the light (red, green, blue) that comes back through a full layer of blood.
BLOOD: dict[str, tuple[float, float, float]] = {
    "microaneurysm": (0.76, 0.40, 0.48),
    "blot_haemorrhage": (0.68, 0.32, 0.42),
    "flame_haemorrhage": (0.74, 0.38, 0.46),
    "new_vessels": (0.82, 0.46, 0.50),
    "preretinal_haemorrhage": (0.40, 0.12, 0.22),
    "vitreous_haemorrhage": (0.30, 0.22, 0.28),
}


@dataclass(frozen=True)
class _Scene:
    """What the drawing of a lesion may look at."""

    raster: Raster
    eye: Eye
    rng: np.random.Generator


def beading(veins: Vessels, centres: NDArray[np.floating]) -> tuple[Array, NDArray[np.bool_]]:
    """Return the factor on the calibre of the venous trunks and where they are beaded, both (B, T)."""
    points = veins.trunks.points
    factor, beaded = np.ones(points.shape[:2]), np.zeros(points.shape[:2], bool)
    step = np.arange(points.shape[1])
    for centre in centres:
        k, middle = divmod(int(np.argmin(((points - centre) ** 2).sum(2))), len(step))
        stretch = np.clip(1.2 - np.abs(step - middle) / 22, 0, 1)
        factor[k] += 0.38 * stretch * np.sin(2 * np.pi * step / 5.2)
        beaded[k] = stretch > 0.2
    return factor, beaded


def draw_lesions(raster: Raster, eye: Eye, placed: Placed, rng: np.random.Generator) -> dict[str, Floats]:
    """Return the layer (side, side) of every kind that is present; beading is part of the veins."""
    scene = _Scene(raster, eye, rng)
    layers = {}
    for name, paint in _PAINTERS.items():
        if len(placed[name]):
            layer = raster.layer()
            paint(scene, layer, placed[name])
            layers[name] = raster.inside(layer)
    return layers


def _microaneurysms(scene: _Scene, layer: Floats, at: Array) -> None:
    scene.raster.blobs(layer, at, scene.rng.uniform(0.005, 0.0105, len(at)), 0.35)


def _outline(rng: np.random.Generator, count: int) -> Array:
    """Draw irregular outlines: mostly oval, then pear-shaped, seldom lobed."""
    return np.array([0.10, 0.10, 0.07, 0.07, 0.035, 0.035]) * rng.standard_normal((count, 6))


def _blots(scene: _Scene, layer: Floats, at: Array) -> None:
    """Most are dots, few are large; the outline is irregular and soft."""
    count = len(at)
    radius = 0.012 + 0.032 * scene.rng.random(count) ** 1.6
    strength = scene.rng.uniform(0.45, 1.0, count)
    scene.raster.blobs(layer, at, radius, 0.40, strength, _outline(scene.rng, count))


def _flames(scene: _Scene, layer: Floats, at: Array) -> None:
    """Bundles of streaks along the nerve fibres, feathered at both ends."""
    rng, count, streaks = scene.rng, len(at), 8
    along = fibre_direction(at, scene.eye)
    across = np.stack([-along[:, 1], along[:, 0]], 1)
    size = rng.uniform(0.03, 0.075, (count, 1))
    place_across = np.linspace(-1, 1, streaks)
    half = size * np.sqrt(1.05 - place_across**2) * rng.uniform(0.5, 1.15, (count, streaks))
    shift = size * 0.25 * rng.standard_normal((count, streaks))
    middle = at[:, None] + across[:, None] * (0.26 * size * place_across)[..., None]
    middle = middle + along[:, None] * shift[..., None]
    reach = along[:, None] * half[..., None]
    radius = np.broadcast_to(0.06 * size, half.shape) * rng.uniform(0.6, 1.4, half.shape)
    strength = rng.uniform(0.6, 0.95, half.shape)
    cuts = np.linspace(-1, 1, 6)
    for low, high in pairwise(cuts):
        thin = radius * np.sqrt(1.05 - max(low**2, high**2))
        start, end = middle + low * reach, middle + high * reach
        scene.raster.strokes(layer, start.reshape(-1, 2), end.reshape(-1, 2), thin.reshape(-1), strength.reshape(-1))


def fibre_direction(at: Array, eye: Eye) -> Array:
    """Return the unit direction (n, 2) of the nerve fibres: field lines from the disc to the raphe."""
    sink = eye.disc + np.array([2.1, 0])
    away, toward = at - eye.disc, sink - at
    field = away / (away**2).sum(1, keepdims=True) + toward / (toward**2).sum(1, keepdims=True)
    unit: Array = field / np.linalg.norm(field, axis=1, keepdims=True)
    return unit


def _exudate_spots(scene: _Scene, layer: Floats, at: Array) -> None:
    count = len(at)
    radius = 0.004 + 0.013 * scene.rng.random(count) ** 3
    scene.raster.blobs(layer, at, radius, 0.15, scene.rng.uniform(0.6, 1, count), _outline(scene.rng, count))


def _cotton_wool(scene: _Scene, layer: Floats, at: Array) -> None:
    """Each spot is a few overlapping puffs across the nerve fibres."""
    rng, puffs = scene.rng, 4
    along = fibre_direction(at, scene.eye)
    size = rng.uniform(0.020, 0.044, len(at))
    offset = (
        np.stack([-along[:, 1], along[:, 0]], 1)[:, None]
        * (size[:, None] * rng.uniform(-1, 1, (len(at), puffs)))[..., None]
    )
    offset = offset + 0.25 * size[:, None, None] * rng.standard_normal((len(at), puffs, 2))
    offset[:, 0] = 0
    centre = (at[:, None] + offset).reshape(-1, 2)
    radius = np.repeat(size, puffs) * rng.uniform(0.6, 1.0, len(centre))
    scene.raster.blobs(layer, centre, radius, 0.5, rng.uniform(0.7, 1, len(centre)), _outline(rng, len(centre)))


def _new_vessels(scene: _Scene, layer: Floats, at: Array) -> None:
    """Fine tortuous fronds that fan out from a root and curl back."""
    rng, fronds = scene.rng, 16
    count = len(at) * fronds
    start = np.repeat(at, fronds, 0) + 0.012 * rng.standard_normal((count, 2))
    angle = np.repeat(rng.uniform(0, 2 * np.pi, len(at)), fronds) + rng.normal(0, 1.0, count)
    size = np.repeat(rng.uniform(0.6, 1.3, len(at)), fronds)
    tangle = grow(
        rng, start, angle, angle + rng.normal(0, 2.6, count), 0.12 * size, size * rng.uniform(0.10, 0.30, count),
        rng.uniform(0.0018, 0.0034, count), 3.2, points=36, taper=0.3,
    )  # fmt: skip
    draw_branches(scene.raster, layer, (replace(tangle, alive=np.ones_like(tangle.alive)), 1.0, 1.0))


def _preretinal(scene: _Scene, layer: Floats, at: Array) -> None:
    """Boat-shaped: blood that has settled below a level top between the retina and the vitreous."""
    raster, rng = scene.raster, scene.rng
    for x, y in at:
        width, depth = rng.uniform(0.16, 0.34), rng.uniform(0.10, 0.24)
        tilt = rng.normal(0, 0.06)
        dx, dy = raster.x - x, (raster.y - y)[:, None] - tilt * (raster.x - x)
        reach = np.hypot(dx / width, np.minimum(dy, 0) / depth)
        waves = 0.04 * np.sin(5 * dx / width + rng.uniform(0, 6)) + 0.012 * np.sin(13 * dx / width)
        edge = max(0.008, 0.7 / raster.scale)
        hull = np.clip(0.5 + (1 + waves - reach) * depth / (2 * edge), 0, 1)
        top = np.clip(0.5 - dy / (2 * edge), 0, 1)
        view = raster.inside(layer)
        np.maximum(view, (hull * top).astype(np.float32), out=view)


def _vitreous(scene: _Scene, layer: Floats, at: Array) -> None:
    """Diffuse dark clouds that hide what is behind them, denser below."""
    raster, rng = scene.raster, scene.rng
    for x, y in at:
        cloud = 1.1 * raster.bump((x, y - 0.1), rng.uniform(0.3, 0.55), rng.uniform(0.22, 0.4))
        cloud *= np.clip(1 + raster.texture(0.45 * rng.standard_normal((11, 11))), 0, 2)
        cloud += 0.25
        view = raster.inside(layer)
        np.maximum(view, np.clip(cloud, 0, 1), out=view)


_PAINTERS: dict[str, Callable[[_Scene, Floats, Array], None]] = {
    "hard_exudate": _exudate_spots, "microaneurysm": _microaneurysms, "blot_haemorrhage": _blots,
    "flame_haemorrhage": _flames, "cotton_wool_spot": _cotton_wool, "new_vessels": _new_vessels,
    "preretinal_haemorrhage": _preretinal, "vitreous_haemorrhage": _vitreous,
}  # fmt: skip
