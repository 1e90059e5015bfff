"""Positions of the lesions: as many as the truth counts, all within the visible field of the camera."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from retinabench.data.synthetic.anatomy import Eye
from retinabench.data.synthetic.camera import visible
from retinabench.data.synthetic.vessels import Array

Placed = dict[str, NDArray[np.floating]]
"""Lesion name to the positions (n, 2) of its centres in eye coordinates."""


def place(
    counts: Mapping[str, int], eye: Eye, camera: Mapping[str, float], rng: np.random.Generator
) -> Placed:
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
    distance = np.where(
        ring[member], 1 + 0.15 * rng.standard_normal(count), np.abs(rng.standard_normal(count))
    )
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
