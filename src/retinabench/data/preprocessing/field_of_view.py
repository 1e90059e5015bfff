"""Find the field of view of a fundus image: its bounding box, or its circle even if the image cuts it off."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

SEARCHED = 256  # pixels of the longer side at which the circle is looked for: fits a radius to about 0.3 %
LEVELS = (0.2, 0.35, 0.5)  # between surround and retina: thresholds tried where the ordinary one finds no rim
RIM = 0.35  # least fall of brightness across a rim, as a share of retina less surround; real rims have 0.39 and more
BEYOND = 0.2  # of the radius: a box that reaches further than this beyond the circle holds surround


class Circle(NamedTuple):
    """Centre and radius in pixels; the image's upper left corner is (0, 0), the middle of its first pixel (½, ½)."""

    x: float
    y: float
    radius: float


def field_box(rgb: NDArray[np.uint8]) -> tuple[int, int, int, int]:
    """Return the box (left, top, right, bottom) around the field of view of an image (H, W, 3).

    Lit is what is brighter than a tenth of the middle row's mean (Graham's rule, applied to columns and rows). Where
    nothing is, the box is the whole image. Where noise or stretched contrast lights the surround too, so that the box
    reaches far beyond the circle of the field of view, the box is cut at the circle.
    """
    brightness = rgb[..., 0].astype(np.uint16) + rgb[..., 1] + rgb[..., 2]
    box = _box(brightness > brightness[len(brightness) // 2].mean() / 10)
    x, y, radius = field_circle(Image.fromarray(rgb))
    circle = (x - radius, y - radius, x + radius, y + radius)
    beyond = max(circle[0] - box[0], circle[1] - box[1], box[2] - circle[2], box[3] - circle[3])
    if beyond <= BEYOND * radius:
        return box
    left, top, right, bottom = (round(edge) for edge in circle)
    return max(box[0], left), max(box[1], top), min(box[2], right), min(box[3], bottom)


def field_circle(rgb: Image.Image) -> Circle:
    """Fit the circle of the field of view to the border between lit and dark.

    Works for fields of view off the centre, cut by the image's edge or by a straight mask, with specks around them, and
    in a noisy or lightened surround. The image's own edge is no border of the circle. Where too little of the border is
    seen (an image cropped inside the circle, a black one), the circle is centred on the lit box and half as wide as its
    longer side.
    """
    factor = max(1, max(rgb.size) // SEARCHED)
    grey = rgb.reduce(factor).convert("L")
    brightness = np.asarray(grey, dtype=np.float32)
    lit = _lit(brightness)
    left, top, right, bottom = _box(lit)
    circle = _fit(_border(lit))
    longer = max(right - left, bottom - top)
    if circle is not None and not 0.4 * longer < circle.radius < 0.75 * max(lit.shape):
        circle = None
    circle = _clearest(grey, brightness, circle)
    if circle is None:
        circle = Circle((left + right) / 2, (top + bottom) / 2, longer / 2)
    # Least squares differs in its last bits from machine to machine.
    return Circle(*(round(factor * float(value), 3) for value in circle))


def _clearest(grey: Image.Image, brightness: NDArray[np.float32], first: Circle | None) -> Circle | None:
    """Return the first circle if the brightness clearly falls across it, else the clearest at other thresholds."""
    dark, bright = _levels(brightness)
    span = max(bright - dark, 1e-6)
    best, score = first, _contrast(brightness, first) / span if first is not None else 0.0
    if score >= RIM:
        return best
    smooth = np.asarray(grey.filter(ImageFilter.MedianFilter(5)), dtype=np.float32)
    dark, bright = _levels(smooth)
    span = max(bright - dark, 1e-6)
    for level in LEVELS:
        circle = _fit(_border(smooth > dark + level * span))
        if circle is not None and 0.2 * max(smooth.shape) < circle.radius < 0.75 * max(smooth.shape):
            contrast = _contrast(brightness, circle) / span
            if contrast > max(score + 0.1, RIM):
                best, score = circle, contrast
    return best


def _contrast(brightness: NDArray[np.float32], circle: Circle) -> float:
    """Return by how much the brightness falls across a circle: the lower quartile over its visible sectors."""
    angle = 2 * np.pi * (np.arange(96) + 0.5) / 96
    height, width = brightness.shape
    rings = []
    for shares in ((0.9, 0.93, 0.96), (1.04, 1.07, 1.1)):
        radius = circle.radius * np.array(shares)[:, None]
        x = np.floor(circle.x + radius * np.cos(angle)).astype(int)
        y = np.floor(circle.y + radius * np.sin(angle)).astype(int)
        seen = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        rings.append(np.where(seen, brightness[y.clip(0, height - 1), x.clip(0, width - 1)], np.nan))
    falls = (rings[0] - rings[1]).mean(axis=0).reshape(24, 4).mean(axis=1)
    falls = falls[np.isfinite(falls)]
    return float(np.percentile(falls, 25)) if len(falls) >= 8 else 0.0


def _lit(brightness: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Tell the retina from the surround, whose level is that of the darkest corner."""
    dark, bright = _levels(brightness)
    if dark > bright / 3:  # all corners show retina
        dark = 0.0
    return np.asarray(brightness > dark + (bright - dark) / 10)


def _levels(brightness: NDArray[np.float32]) -> tuple[float, float]:
    """Return the brightness of the darkest corner, and of the retina."""
    bright = brightness[brightness >= brightness.mean()].mean()
    patch = max(1, min(brightness.shape) // 32)
    corners = [brightness[rows, columns].mean() for rows in (slice(patch), slice(-patch, None))
               for columns in (slice(patch), slice(-patch, None))]  # fmt: skip
    return min(corners), bright


def _box(lit: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    # A speck of noise outside the field of view must not widen the box: a lit column has a lit twentieth.
    columns = np.flatnonzero(lit.mean(axis=0) > 0.05)
    rows = np.flatnonzero(lit.mean(axis=1) > 0.05)
    if columns.size == 0 or rows.size == 0:
        return 0, 0, lit.shape[1], lit.shape[0]
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def _border(lit: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return points (n, 2), x and y: the first and last lit pixel of each row and column, off the image's edge."""
    points = []
    for swapped, grid in ((False, lit), (True, lit.T)):
        lines = np.flatnonzero(grid.mean(axis=1) > 0.05)
        grid = grid[lines]
        first, last = grid.argmax(axis=1), grid.shape[1] - grid[:, ::-1].argmax(axis=1)
        for place, inside in ((first, first > 1), (last, last < grid.shape[1] - 1)):
            pair = (place[inside], lines[inside] + 0.5)
            points.append(np.stack(pair[::-1] if swapped else pair, axis=1))
    return np.concatenate(points).astype(np.float64)


def _fit(points: NDArray[np.float64]) -> Circle | None:
    """Fit a circle by consensus over triples of border points, then by least squares over those that agree."""
    if len(points) < 24:
        return None
    middle = points.mean(axis=0)
    points = points[np.argsort(np.arctan2(*(points - middle).T), kind="stable")]
    chosen = points[np.linspace(0, len(points) - 1, min(len(points), 240)).astype(int)]
    n = len(chosen)
    start = np.arange(0, n, max(1, n // 40))
    triples = [
        chosen[(start[:, None] + np.array(steps)) % n]
        for steps in ((0, n // 3, 2 * n // 3), (0, n // 6, n // 3))
    ]
    circles = _through(np.concatenate(triples))
    if not len(circles):  # all points on a line
        return None
    distance = np.hypot(chosen[:, 0] - circles[:, :1], chosen[:, 1] - circles[:, 1:2]) - circles[:, 2:]
    agree = np.abs(distance) < 0.015 * circles[:, 2:]
    best = int(agree.sum(axis=1).argmax())
    if agree[best].mean() < 0.4:
        return None
    kept = chosen[agree[best]] - middle
    equations = np.column_stack([2 * kept, np.ones(len(kept))])
    (x, y, rest), *_ = np.linalg.lstsq(equations, (kept**2).sum(axis=1))
    return Circle(x + middle[0], y + middle[1], float(np.sqrt(rest + x * x + y * y)))


def _through(triples: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return circles (m, 3), x, y and radius, through triples (m, 3, 2); those of points on a line are infinite."""
    a, b, c = triples.transpose(1, 0, 2)
    (bx, by), (cx, cy) = (b - a).T, (c - a).T
    twice = 2 * (bx * cy - by * cx)
    with np.errstate(divide="ignore", invalid="ignore"):
        x = (cy * (bx**2 + by**2) - by * (cx**2 + cy**2)) / twice
        y = (bx * (cx**2 + cy**2) - cx * (bx**2 + by**2)) / twice
    circles = np.column_stack([a[:, 0] + x, a[:, 1] + y, np.hypot(x, y)])
    finite: NDArray[np.float64] = circles[np.isfinite(circles).all(axis=1)]
    return finite
