"""The versions of an image that a model is shown: as it is, without a lesion, and with a control of the same shape filled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from retinabench.concepts.occlusion.fill import Mask, fill, moved
from retinabench.core.random_streams import numpy_generator
from retinabench.data.dataset import ConceptImages
from retinabench.data.preprocessing.field_of_view import field_circle

ALL = "all concepts"
MARGIN = 0.006  # of the side: a lesion's soft border lies outside its mask
GUARD = 0.01  # of the side: the halo of a lesion is no background either
COVERED = 0.25  # a pixel belongs to a reduced mask from this share of the mask's pixels in it
INSIDE = 0.94  # of the radius of the field of view, in which controls lie: the rim is no background

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Variants:
    """Versions of one image, at the size at which it is filled.

    Shapes: `original` (S, S, 3).
    """

    original: Pixels
    filled: dict[str, Pixels]
    controls: dict[str, list[Pixels]]
    rendered: dict[str, Pixels]
    area: dict[str, float]


def variants(images: ConceptImages, row: int, side: int, *, controls: int, seed: int) -> Variants:
    """Return the versions of an image."""
    assert images.masks is not None
    original = images.image(row, side)
    masks = {
        name: _reduced(mask, side) for name, mask in zip(images.concepts, images.masks(row), strict=True)
    }
    masks = {name: mask for name, mask in masks.items() if mask.any()}
    if len(masks) > 1:
        masks[ALL] = np.logical_or.reduce(list(masks.values()))
    lesions = np.logical_or.reduce([*masks.values(), np.zeros((side, side), np.bool_)])
    field = _field(original)
    halo = ndimage.binary_dilation(lesions, iterations=max(1, round(GUARD * side)))
    background = field & ~halo
    filled, elsewhere, rendered, area = {}, {}, {}, {}
    for name, mask in masks.items():
        filled[name] = fill(original, mask, background)
        area[name] = float(mask.sum() / field.sum())
        random = numpy_generator(seed, "control", str(images.sample_id[row]), name)
        drawn = [moved(mask, background, random) for _ in range(controls)]
        elsewhere[name] = [fill(original, shape, background) for shape in drawn if shape is not None]
        if images.without is not None:
            rendered[name] = images.without(row, side, images.concepts if name == ALL else (name,))
    return Variants(original, filled, elsewhere, rendered, area)


def _reduced(mask: Mask, side: int) -> Mask:
    """Return a mask at another size, with a margin."""
    if not mask.any():
        return np.zeros((side, side), np.bool_)
    grey = Image.fromarray(mask.astype(np.uint8) * 255).resize((side, side), Image.Resampling.BOX)
    small = np.asarray(grey) > 255 * COVERED
    rows, columns = np.nonzero(mask)  # a lesion that is smaller than a pixel keeps that pixel
    small[rows * side // len(mask), columns * side // len(mask)] |= ~small.any()
    return np.asarray(ndimage.binary_dilation(small, iterations=max(1, round(MARGIN * side))))


def _field(image: Pixels) -> Mask:
    """Return the inner part of the field of view."""
    circle = field_circle(Image.fromarray(image))
    y, x = np.indices(image.shape[:2]) + 0.5
    inside: Mask = np.hypot(x - circle.x, y - circle.y) < INSIDE * circle.radius
    inside &= image.max(axis=2) > 0
    return inside
