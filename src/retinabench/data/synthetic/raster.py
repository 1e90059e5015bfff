"""The canvas: from eye coordinates to pixels, with anti-aliasing by area.

Eye coordinates have their origin at the fovea, x temporal, y superior, and the unit 25 degrees of visual
angle, the field-of-view radius of the 50 degree camera that took IDRiD. Anatomy and lesions do not depend
on pixels, so that an image has the same content at every size.

Images below 256 px are drawn on a canvas of twice their size and averaged down by the camera.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import BSpline

Floats = NDArray[np.float32]
LARGEST_RADIUS = 0.14
"""Largest radius that `strokes` and `blobs` draw, in eye units; it sets the margin around the canvas."""

Window = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]
"""Members (m,) of a group, and the columns (m, k) and rows (m, k) of the square of pixels around each."""

_WINDOWS = (3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


class Raster:
    """A square canvas of `side` pixels for one image: coordinates, and two ways to draw on a layer."""

    def __init__(self, size: int, eye: str, camera: Mapping[str, float]) -> None:
        self.size = size
        self.side = size if size >= 256 else 2 * size
        self.field_radius = camera["field_degrees"] / 50
        self.scale = 0.5 * self.side * camera["fill"] / self.field_radius  # pixels per eye unit
        self.mirror = 1.0 if eye == "left" else -1.0  # seen from outside, temporal is right in a left eye
        self.gaze = np.array([camera["gaze_x"], camera["gaze_y"]])
        self.margin = int(np.ceil(LARGEST_RADIUS * self.scale)) + 4
        steps = (np.arange(self.side, dtype=np.float32) + 0.5 - self.side / 2) / self.scale
        self.x: Floats = (self.mirror * steps + self.gaze[0]).astype(np.float32)  # (side,) of the columns
        self.y: Floats = (self.gaze[1] - steps).astype(np.float32)  # (side,) of the rows
        self.field = steps / self.field_radius  # (side,) in field-of-view radii, right or down from the centre

    def layer(self) -> Floats:
        """Return an empty layer (side + 2 margin, side + 2 margin)."""
        return np.zeros((self.side + 2 * self.margin,) * 2, np.float32)

    def inside(self, layer: Floats) -> Floats:
        """Return the view (side, side) of a layer without its margin."""
        return layer[self.margin : -self.margin, self.margin : -self.margin]

    def pixels(self, points: NDArray[np.floating]) -> Floats:
        """Turn eye coordinates (..., 2) into layer coordinates (column, row) in pixels."""
        sign = np.array([self.mirror, -1.0]) * self.scale
        place: Floats = ((points - self.gaze) * sign + (self.margin + self.side / 2)).astype(np.float32)
        return place

    def bump(self, centre: tuple[float, float], width: float, height: float | None = None) -> Floats:
        """Return the Gaussian (side, side) of value 1 at `centre`."""
        across = np.exp(-0.5 * ((self.x - centre[0]) / width) ** 2)
        down = np.exp(-0.5 * ((self.y - centre[1]) / (height or width)) ** 2)
        bump: Floats = (down[:, None] * across).astype(np.float32)
        return bump

    def window(self, centre: tuple[float, float], reach: float) -> tuple[slice, slice] | None:
        """Return rows and columns within `reach` of `centre`, or None where that lies outside the canvas."""
        rows = np.flatnonzero(np.abs(self.y - centre[1]) < reach)
        columns = np.flatnonzero(np.abs(self.x - centre[0]) < reach)
        if not rows.size or not columns.size:
            return None
        return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)

    def strokes(
        self,
        layer: Floats,
        start: NDArray[np.floating],
        end: NDArray[np.floating],
        radius: NDArray[np.floating],
        strength: NDArray[np.floating] | float = 1.0,
        softness: float = 0.0,
    ) -> None:
        """Draw M straight strokes, the parts of curved vessels, with maximum where they overlap.

        A stroke thinner than a pixel covers it in proportion.
        Shapes: `start` (M, 2), `end` (M, 2), `radius` (M,), `strength` (M,).
        """
        start, end = self.pixels(start), self.pixels(end)
        radius = np.asarray(radius, np.float32) * np.float32(self.scale)
        strength = np.broadcast_to(np.asarray(strength, np.float32), radius.shape)
        along = end - start
        length = np.hypot(along[:, 0], along[:, 1]) + np.float32(1e-6)
        centre = 0.5 * (start + end)
        edge = np.maximum(softness * radius, np.float32(0.5))
        reach = radius + edge + 0.5 * length + 0.5
        unit = along / length[:, None]
        half = 0.5 * length
        full = np.minimum(2 * radius, 1)
        for group, columns, rows in self._windows(layer, centre, reach):
            dx = columns.astype(np.float32) + (0.5 - centre[group, :1])
            dy = rows.astype(np.float32) + (0.5 - centre[group, 1:])
            ux, uy = unit[group, :1], unit[group, 1:]
            beyond = (dx * ux)[:, None, :] + (dy * uy)[:, :, None]
            across = (dx * uy)[:, None, :] - (dy * ux)[:, :, None]
            np.abs(beyond, out=beyond)
            beyond -= half[group, None, None]
            np.maximum(beyond, 0, out=beyond)
            beyond *= beyond
            across *= across
            across += beyond
            np.sqrt(across, out=across)
            cover = np.subtract((radius[group] + edge[group])[:, None, None], across, out=across)
            if softness:
                cover /= 2 * edge[group, None, None]
            np.maximum(cover, 0, out=cover)
            np.minimum(cover, full[group, None, None], out=cover)
            cover *= strength[group, None, None]
            self._scatter(layer, columns, rows, cover)

    def blobs(
        self,
        layer: Floats,
        centre: NDArray[np.floating],
        radius: NDArray[np.floating],
        softness: float,
        strength: NDArray[np.floating] | float = 1.0,
        outline: NDArray[np.floating] | None = None,
    ) -> None:
        """Draw M roundish spots, with maximum where they overlap.

        The edge is never sharper than a pixel; the strength falls so that the volume under the spot stays.
        Shapes: `centre` (M, 2), `radius` (M,), `strength` (M,), `outline` (M, 6).
        """
        centre = self.pixels(centre)
        radius = np.asarray(radius, np.float32) * np.float32(self.scale)
        strength = np.broadcast_to(np.asarray(strength, np.float32), radius.shape)
        edge = np.maximum(softness * radius, np.float32(0.6))
        height = strength * np.minimum(_volume(radius, softness * radius) / _volume(radius, edge), 1)
        for group, columns, rows in self._windows(layer, centre, 1.35 * radius + edge + 0.5):
            dx = (columns.astype(np.float32) + (0.5 - centre[group, :1]))[:, None, :]
            dy = (rows.astype(np.float32) + (0.5 - centre[group, 1:]))[:, :, None]
            distance = np.sqrt(dx * dx + dy * dy) + np.float32(1e-6)
            reach = radius[group, None, None]
            if outline is not None:
                waves = np.asarray(outline, np.float32)[group].T[:, :, None, None]
                reach = reach * (1 + _ripple(dx / distance, dy / distance, waves))
            cover = np.clip(0.5 + (reach - distance) / (2 * edge[group, None, None]), 0, 1)
            cover *= height[group, None, None]
            self._scatter(layer, columns, rows, cover)

    def _windows(self, layer: Floats, centre: Floats, reach: Floats) -> list[Window]:
        """Group what lies on the layer by the size of its square of pixels: (members, columns, rows)."""
        side = layer.shape[0]
        inner, outer = self.margin - 2, side - self.margin + 2
        near = (centre > inner - reach[:, None]) & (centre < outer + reach[:, None])
        on = np.flatnonzero(near[:, 0] & near[:, 1])
        need = np.searchsorted(_WINDOWS, np.minimum(reach[on], inner))
        groups = []
        for size in np.flatnonzero(np.bincount(need)):
            half = min(_WINDOWS[size], inner)
            members = on[need == size]
            corner = np.clip(np.floor(centre[members]).astype(np.intp), half, side - 1 - half)
            span = np.arange(-half, half + 1)
            groups.append((members, corner[:, :1] + span, corner[:, 1:] + span))
        return groups

    @staticmethod
    def _scatter(layer: Floats, columns: NDArray[np.intp], rows: NDArray[np.intp], cover: Floats) -> None:
        where = (rows * layer.shape[1])[:, :, None] + columns[:, None, :]
        np.maximum.at(layer.reshape(-1), where.reshape(-1), cover.reshape(-1))

    def texture(self, coefficients: NDArray[np.floating]) -> Floats:
        """Return the cubic spline surface (side, side) with the given (n, n) coefficients over the frame."""
        basis = spline_basis(self.side, len(coefficients))
        return basis @ coefficients.astype(np.float32) @ basis.T


def _volume(radius: Floats, edge: Floats) -> Floats:
    """Volume over pi under a spot whose edge falls linearly from radius - edge to radius + edge."""
    tiny = np.float32(1e-6)
    cone = (radius + edge) ** 3 / (6 * edge + tiny)
    return np.where(radius < edge, cone, radius**2 + edge**2 / 3) + tiny


def _ripple(cosine: Floats, sine: Floats, waves: Floats) -> Floats:
    """Outline harmonics 2, 3 and 5 of the angle, from its cosine and sine, without trigonometry."""
    c2, s2 = cosine * cosine - sine * sine, 2 * cosine * sine
    c3, s3 = c2 * cosine - s2 * sine, s2 * cosine + c2 * sine
    c5, s5 = c3 * c2 - s3 * s2, s3 * c2 + c3 * s2
    ripple: Floats = waves[0] * c2 + waves[1] * s2 + waves[2] * c3 + waves[3] * s3 + waves[4] * c5 + waves[5] * s5
    return ripple


@lru_cache(maxsize=64)
def spline_basis(side: int, count: int) -> Floats:
    """Return (side, count): means of `count` cubic B-splines over `side` equal pixels, from their integrals: a surface drawn small is the area average of one drawn large."""
    cells = count - 3
    knots = np.arange(-3, count + 1) / cells
    edges = np.linspace(0, 1, side + 1)
    primitives = BSpline(knots, np.eye(count), 3, extrapolate=False).antiderivative()
    return (np.diff(primitives(edges), axis=0) * side).astype(np.float32)
