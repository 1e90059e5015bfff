"""Fill a part of an image with the texture that surrounds it, and place the same shape elsewhere.

The slow part of the filling is an average of the surrounding pixels, in a window that widens until it reaches them; the
fine part is the difference of the surrounding pixels from their own average, mirrored at the border of the part.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Mask = NDArray[np.bool_]

NARROWEST = 0.03  # of the side: width of the first window; each further one is twice as wide
SCALES = 5
FAINT = 0.05  # an average of less weight than this gives way to that of the wider window
TRIES = 200  # places that are tried for a piece of a shape


def fill(image: NDArray[np.uint8], mask: Mask, source: Mask) -> NDArray[np.uint8]:
    """Return an image in which a part is filled with the surrounding texture.

    Shapes: `image` (S, S, 3), `mask` (S, S), `source` (S, S), returns (S, S, 3).
    """
    source = source & ~mask
    if not mask.any() or not source.any():
        return image.copy()
    pixels = image.astype(np.float32)
    slow = _average(pixels, source)
    fine = pixels - slow
    nearest = ndimage.distance_transform_edt(~source, return_distances=False, return_indices=True)
    here = np.indices(mask.shape)
    mirrored = np.clip(2 * nearest - here, 0, len(mask) - 1)
    mirrored = np.where(source[tuple(mirrored)], mirrored, nearest)
    filled = slow[mask] + fine[tuple(mirrored)][mask]
    out = image.copy()
    out[mask] = np.clip(np.rint(filled), 0, 255).astype(np.uint8)
    return out


def _average(pixels: NDArray[np.float32], source: Mask) -> NDArray[np.float32]:
    """Return the average (S, S, 3) of the source pixels around every pixel, at the finest scale that reaches some."""
    weight = source.astype(np.float32)
    average = np.broadcast_to(pixels[source].mean(axis=0), pixels.shape)
    for scale in reversed(range(SCALES)):
        width = 2 * round(NARROWEST * len(source) * 2**scale / 2) + 1
        mass = _window(weight, width)[..., None]
        total = np.stack([_window(weight * pixels[..., c], width) for c in range(3)], axis=-1)
        share = np.minimum(mass / FAINT, 1)
        average = share * (total / np.maximum(mass, 1e-6)) + (1 - share) * average
    return average


def _window(values: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Return local means: two passes of a square window, whose time does not depend on its width."""
    once = ndimage.uniform_filter(values, width, mode="constant")
    return np.asarray(ndimage.uniform_filter(once, width, mode="constant"))


def moved(mask: Mask, free: Mask, random: np.random.Generator) -> Mask | None:
    """Return the same shape elsewhere: each connected piece is moved, mirrored at random, to pixels that are free.

    Shapes: `mask` (S, S), `free` (S, S), returns (S, S).
    """
    pieces, count = ndimage.label(mask, structure=np.ones((3, 3)))
    left = free & ~mask
    placed = np.zeros_like(mask)
    boxes = ndimage.find_objects(pieces)
    for number in sorted(
        range(count), key=lambda k: -int((pieces[boxes[k]] == k + 1).sum())
    ):  # largest first
        piece = pieces[boxes[number]] == number + 1
        place = _place(piece, left, random)
        if place is None:
            return None
        window = placed[place[0] : place[0] + len(piece), place[1] : place[1] + piece.shape[1]]
        kept = left[place[0] : place[0] + len(piece), place[1] : place[1] + piece.shape[1]]
        shape = _turned(piece, place[2])
        window |= shape
        kept &= ~shape
    return placed


def _place(piece: Mask, left: Mask, random: np.random.Generator) -> tuple[int, int, int] | None:
    """Return row, column and symmetry of a place where a piece fits, None where `TRIES` find none."""
    rows, columns = np.nonzero(left)
    for _ in range(TRIES if len(rows) else 0):
        chosen, symmetry = int(random.integers(len(rows))), int(random.integers(4))
        row, column = int(rows[chosen]) - len(piece) // 2, int(columns[chosen]) - piece.shape[1] // 2
        if min(row, column) < 0 or row + len(piece) > len(left) or column + piece.shape[1] > len(left):
            continue
        window = left[row : row + len(piece), column : column + piece.shape[1]]
        if window[_turned(piece, symmetry)].all():
            return row, column, symmetry
    return None


def _turned(piece: Mask, symmetry: int) -> Mask:
    """Return a piece mirrored up-down (symmetry 1), left-right (2) or both (3)."""
    turned = piece[::-1] if symmetry & 1 else piece
    return turned[:, ::-1] if symmetry & 2 else turned
