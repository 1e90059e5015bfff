"""Cover lesions with the texture around them, place the same shapes elsewhere, and measure what the network then says.

For an image x with a concept c, and f the model's P(referable) or one of its uncertainties,

    occluded = f(x with c filled) - f(x),    control = mean_k f(x with control k filled) - f(x),

and the effect of the concept is their difference. Averages are over images, their intervals over patients (cluster bootstrap).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from retinabench.core.random_streams import numpy_generator
from retinabench.core.results import Document
from retinabench.core.version import __version__
from retinabench.data.dataset import ConceptImages
from retinabench.data.preprocessing.graham import field_circle
from retinabench.metrics.intervals import Interval
from retinabench.metrics.weighted_images import cluster_bootstrap, percentile_interval

Mask = NDArray[np.bool_]
NARROWEST = 0.03  # of the side: width of the first window; each further one is twice as wide
SCALES = 5
FAINT = 0.05  # an average of less weight than this gives way to that of the wider window
TRIES = 200  # places that are tried for a piece of a shape


def fill(image: NDArray[np.uint8], mask: Mask, source: Mask) -> NDArray[np.uint8]:
    """Return an image (S, S, 3) whose `mask` (S, S) is filled from `source` (S, S).

    The filling is a windowed average of the surrounding pixels plus their difference from it, mirrored at the border of the mask.
    """
    source = source & ~mask
    if not mask.any() or not source.any():
        return image.copy()
    pixels = image.astype(np.float32)
    slow = _average(pixels, source)
    fine = pixels - slow
    nearest = ndimage.distance_transform_edt(~source, return_distances=False, return_indices=True)
    mirrored = np.clip(2 * nearest - np.indices(mask.shape), 0, len(mask) - 1)
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
    """Return the same shape elsewhere: each connected piece is moved, mirrored at random, to pixels that are free; `mask`, `free` (S, S) -> (S, S)."""
    pieces, count = ndimage.label(mask, structure=np.ones((3, 3)))
    left = free & ~mask
    placed = np.zeros_like(mask)
    boxes = ndimage.find_objects(pieces)
    for number in sorted(range(count), key=lambda k: -int((pieces[boxes[k]] == k + 1).sum())):  # largest first
        piece = pieces[boxes[number]] == number + 1
        place = _place(piece, left, random)
        if place is None:
            return None
        row, column, symmetry = place
        here = np.s_[row : row + len(piece), column : column + piece.shape[1]]
        placed[here] |= _turned(piece, symmetry)
        left[here] &= ~_turned(piece, symmetry)
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


ALL = "all concepts"
MARGIN = 0.006  # of the side: a lesion's soft border lies outside its mask
GUARD = 0.01  # of the side: the halo of a lesion is no background either
COVERED = 0.25  # a pixel belongs to a reduced mask from this share of the mask's pixels in it
CONTROLS = 2  # shapes of a concept that are filled elsewhere in the same image
INSIDE = 0.94  # of the radius of the field of view, in which controls lie: the rim is no background
Pixels = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Variants:
    """Versions of one image, at the size at which it is filled; shapes: `original` (S, S, 3)."""

    original: Pixels
    filled: dict[str, Pixels]
    controls: dict[str, list[Pixels]]
    rendered: dict[str, Pixels]
    area: dict[str, float]


def variants(images: ConceptImages, row: int, side: int, *, seed: int) -> Variants:
    assert images.masks is not None
    original = images.image(row, side)
    masks = {name: _reduced(mask, side) for name, mask in zip(images.concepts, images.masks(row), strict=True)}
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
        drawn = [moved(mask, background, random) for _ in range(CONTROLS)]
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
    circle, (y, x) = field_circle(Image.fromarray(image)), np.indices(image.shape[:2]) + 0.5
    inside = np.hypot(x - circle.x, y - circle.y) < INSIDE * circle.radius
    return np.asarray(inside & (image.max(axis=2) > 0))


Floats = NDArray[np.float64]
KINDS = ("occluded", "control", "difference", "rendered", "error")
"""Changes: with the concept filled, with the control filled, the first minus the second, with the concept left out of the
drawing, and what filling changes beyond that."""


@dataclass(frozen=True)
class Effect(Document):
    """What removing a concept does to a model."""

    concept: str
    images: int
    patients: int
    without_control: int
    area: float | None
    before: float | None
    probability: Mapping[str, Interval]
    uncertainty: Mapping[str, Interval]
    epistemic: Mapping[str, Interval] | None
    referred: int
    reversed_occluded: int
    reversed_control: float


@dataclass(frozen=True)
class Occlusion(Document):
    """What the lesions of a bank contribute to a model's decision.

    `reference` holds the number of images without any concept and their mean P(referable), None where there are none.
    """

    _schema = "retinabench.occlusion/1"

    bank: str
    drawn: bool
    model: str
    weights: str
    size: int
    samples: int
    images: int
    patients: int
    controls: int
    replicates: int
    seed: int
    reference: Mapping[str, float | None]
    effects: Sequence[Effect]
    notes: Sequence[str]
    version: str = __version__


@dataclass(frozen=True, eq=False)
class OccludedImage:
    """What a model says of the versions of one image that has a concept.

    Each value is a row of three: P(referable), total and epistemic uncertainty (NaN without posterior samples).
    Shapes: `controls` (K, 3).
    """

    image_id: str
    patient_id: str
    concept: str
    area: float
    original: Floats
    occluded: Floats
    controls: Floats
    rendered: Floats | None

    def changes(self) -> Floats:
        """Return (5, 3): the changes of `KINDS`, NaN where they are unknown."""
        nothing = np.full(3, np.nan)
        occluded = self.occluded - self.original
        control = self.controls.mean(axis=0) - self.original if len(self.controls) else nothing
        rendered = nothing if self.rendered is None else self.rendered - self.original
        return np.stack([occluded, control, occluded - control, rendered, occluded - rendered])


def effect_of(concept: str, answered: Sequence[OccludedImage], *, replicates: int, seed: int) -> Effect:
    used = [one for one in answered if len(one.controls)]
    changes = np.stack([one.changes() for one in used]) if used else np.empty((0, len(KINDS), 3))
    probability, uncertainty, epistemic = (
        _averages(changes[..., k], [one.patient_id for one in used], replicates, seed) for k in range(3)
    )
    referred = [one for one in used if one.original[0] >= 0.5]
    return Effect(
        concept=concept,
        images=len(used),
        patients=len({one.patient_id for one in used}),
        without_control=len(answered) - len(used),
        area=float(np.mean([one.area for one in used])) if used else None,
        before=float(np.mean([one.original[0] for one in used])) if used else None,
        probability=probability,
        uncertainty=uncertainty,
        epistemic=epistemic if np.isfinite(epistemic["occluded"].value) else None,
        referred=len(referred),
        reversed_occluded=sum(bool(one.occluded[0] < 0.5) for one in referred),
        reversed_control=float(sum((one.controls[:, 0] < 0.5).mean() for one in referred)),
    )


def _averages(values: Floats, patients: Sequence[str], replicates: int, seed: int) -> dict[str, Interval]:
    """Return the means over images of changes (N, 5), with intervals over patients."""
    if not len(values):
        return {kind: Interval(np.nan) for kind in KINDS}

    def means(weight: Floats) -> Floats:
        return np.asarray(weight @ values / weight.sum(axis=1, keepdims=True))

    ends = percentile_interval(cluster_bootstrap(means, patients, replicates=replicates, seed=seed))
    each = zip(values.mean(axis=0), *ends, strict=True)
    return {kind: Interval(*map(float, one)) for kind, one in zip(KINDS, each, strict=True)}
