"""A drawn photograph of a retina and the truth about it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from retinabench.core.errors import InputError, nearest
from retinabench.data.synthetic.anatomy import Eye, disc_cover, draw_branches, grow_eye, paint_background
from retinabench.data.synthetic.camera import expose, field_of_view, take_settings
from retinabench.data.synthetic.lesions import BLOOD, COLOURS, Placed, beading, draw_lesions, place
from retinabench.data.synthetic.raster import Floats, Raster
from retinabench.data.synthetic.streams import POPULATIONS, Population, stream

# Proportion (5,) of each true grade: the counts of EyePACS train and of labelled APTOS.
GRADE_MIX: dict[Population, NDArray[np.float64]] = {
    "in_domain": np.array([25810, 2443, 5292, 873, 708]) / 35126,
    "shifted": np.array([1805, 370, 999, 193, 295]) / 3662,
}

FELLOW_EYE_CORRELATION = 0.85
"""Correlation of the Gaussian copula that ties the true grades of a patient's two eyes: an assumption."""

CONFUSION: NDArray[np.float64] = np.array(
    [
        [0.960, 0.030, 0.010, 0.000, 0.000],
        [0.300, 0.580, 0.120, 0.000, 0.000],
        [0.050, 0.110, 0.780, 0.050, 0.010],
        [0.000, 0.010, 0.200, 0.740, 0.050],
        [0.005, 0.005, 0.060, 0.080, 0.850],
    ]
)
"""P(reported grade | true grade), (5, 5), rows sum to 1: one reader against the adjudicated truth.

An assumption with the shape that reader studies report: errors fall mostly on neighbouring grades, readers
miss more than they invent, and the commonest disagreement is a missed microaneurysm (Krause et al.,
Ophthalmology 125 (2018) 1264-1272, doi 10.1016/j.ophtha.2018.01.034). Here 30 % of grade 1 is read as 0, and
one eye in six of grade 2 is read below it, as an isolated small haemorrhage is taken for a microaneurysm.
For referable disease the reader has a specificity near 98 % and a sensitivity near 88 % in both populations.
"""

for _fixed in (CONFUSION, *GRADE_MIX.values()):
    _fixed.setflags(write=False)

LESIONS = (
    "microaneurysm", "blot_haemorrhage", "flame_haemorrhage", "hard_exudate", "cotton_wool_spot", "venous_beading",
    "new_vessels", "preretinal_haemorrhage", "vitreous_haemorrhage",
)  # fmt: skip


@dataclass(frozen=True)
class ImageTruth:
    """The truth of one image, at any size."""

    index: int
    patient: int
    eye: Literal["left", "right"]
    population: Population
    true_grade: int
    """International severity scale, 0-4."""
    reported_grade: int
    """The grade that one reader reports: drawn from `CONFUSION[true_grade]`."""
    p_referable: float
    """P(reported grade >= 2 | image) = CONFUSION[true_grade, 2:].sum().

    The image at full resolution shows its true grade, so this is what a perfect reader of it would state.
    """
    lesions: dict[str, int]
    """Number of lesions of each kind in `LESIONS` in the visible field."""
    camera: dict[str, float]
    """Settings of the camera that took the image, as `camera.take_settings` names them."""


def truth(index: int, *, seed: int = 0, population: str = "in_domain") -> ImageTruth:
    """Return the truth of image `index`: patient index // 2, left eye if the index is even."""
    where, index, seed = _population(population), int(index), int(seed)
    grade = _true_grade(index, seed, where)
    reader = stream("label", seed, where, index)
    reported = int(np.searchsorted(np.cumsum(CONFUSION[grade])[:-1], reader.random(), side="right"))
    return ImageTruth(
        index, index // 2, "right" if index % 2 else "left", where, grade, reported, float(CONFUSION[grade, 2:].sum()),
        _lesion_counts(grade, stream("lesions", seed, where, index)),
        take_settings(where, stream("visit", seed, where, index // 2), stream("camera", seed, where, index)),
    )  # fmt: skip


def _population(name: str) -> Population:
    for known in POPULATIONS:
        if name == known:
            return known
    raise InputError(f"unknown population '{name}'", hint=nearest(str(name), POPULATIONS))


def _true_grade(index: int, seed: int, population: Population) -> int:
    """Gaussian copula: sqrt(r) z_patient + sqrt(1 - r) z_eye is standard normal, so the mix is exact."""
    shared = stream("patient_grade", seed, population, index // 2).standard_normal()
    own = stream("eye_grade", seed, population, index).standard_normal()
    z = np.sqrt(FELLOW_EYE_CORRELATION) * shared + np.sqrt(1 - FELLOW_EYE_CORRELATION) * own
    return int(np.searchsorted(np.cumsum(GRADE_MIX[population])[:-1], ndtr(z), side="right"))


def _lesion_counts(grade: int, rng: np.random.Generator) -> dict[str, int]:
    """Draw how many lesions of each kind the international clinical severity scale allows.

    0: none. 1: microaneurysms only. 2: more than microaneurysms, less than severe: fewer than 20
    haemorrhages in all, no beading. 3: the 4-2-1 rule, at least 20 haemorrhages in each of four quadrants or
    venous beading in two, or both; quadrants are those of the image. 4: new vessels, preretinal
    or vitreous haemorrhage, on top of the signs of grade 2.
    Source: Wilkinson et al., Ophthalmology 110 (2003) 1677-1682, doi 10.1016/S0161-6420(03)00475-5.
    """
    counts = dict.fromkeys(LESIONS, 0)
    if grade == 0:
        return counts
    if grade == 1:
        counts["microaneurysm"] = int(rng.integers(1, 9))
        return counts
    # How advanced the disease is within its grade; some of grade 2 has only just left grade 1.
    early = grade == 2 and rng.random() < 0.15
    burden = 0.1 * rng.random() if early else rng.random() ** 0.6
    counts["microaneurysm"] = int(rng.integers(5, 12) + 20 * burden)
    haemorrhages = int(5 + 15 * burden)
    if grade == 3:
        many = rng.random() < 0.6
        if many:
            haemorrhages = int(rng.integers(88, 125))
        if not many or rng.random() < 0.4:
            counts["venous_beading"] = 2
    flames = int(rng.binomial(haemorrhages - 2, 0.3)) + 1
    counts["flame_haemorrhage"] = flames
    counts["blot_haemorrhage"] = haemorrhages - flames
    counts["hard_exudate"] = int(rng.integers(10, 30) + 120 * burden) if rng.random() < 0.45 + 0.45 * burden else 0
    counts["cotton_wool_spot"] = int(rng.integers(1, 3) + 4 * burden) if rng.random() < 0.35 + 0.4 * burden else 0
    if grade == 4:
        sign = rng.choice(["vessels", "preretinal", "vitreous", "both"], p=[0.45, 0.15, 0.15, 0.25])
        counts["new_vessels"] = int(rng.integers(1, 4)) if sign in ("vessels", "both") else 0
        counts["preretinal_haemorrhage"] = int(sign in ("preretinal", "both"))
        counts["vitreous_haemorrhage"] = int(sign == "vitreous" or rng.random() < 0.15)
    return counts


MASK_SHARE = 0.35  # A pixel belongs to a lesion from this share times opacity on; the faintest haemorrhages reach 0.45.


@dataclass(frozen=True)
class Fundus:
    """A synthetic fundus image with its masks and truth."""

    image: NDArray[np.uint8]
    """(size, size, 3) RGB."""
    masks: dict[str, NDArray[np.bool_]]
    """Lesions by name (those present), `field_of_view` and `optic_disc`: each (size, size)."""
    truth: ImageTruth


def draw(
    index: int,
    *,
    size: int,
    seed: int = 0,
    population: str = "in_domain",
    masks: bool = True,
    without: Collection[str] = (),
) -> Fundus:
    """Draw and return image `index` of a population; the same (seed, index, size) gives the same image anywhere."""
    facts = truth(index, seed=seed, population=population)
    key = (int(seed), population, facts.index)
    raster = Raster(int(size), facts.eye, facts.camera)
    eye = grow_eye(*key)
    placing, texture = stream("placing", *key), stream("texture", *key)
    placed = place(facts.lesions, eye, facts.camera, placing)
    layers = draw_lesions(raster, eye, placed, placing)
    retina = paint_background(raster, eye, texture)
    painted = {name: layer for name, layer in layers.items() if name not in without}
    beads = placed["venous_beading"]
    _cover(retina, painted, "hard_exudate")
    _paint_vessels(raster, eye, beads[:0] if "venous_beading" in without else beads, retina)
    for name in ("microaneurysm", "blot_haemorrhage", "flame_haemorrhage"):
        _stain(retina, painted, name)
    _cover(retina, painted, "cotton_wool_spot")
    for name in ("new_vessels", "preretinal_haemorrhage", "vitreous_haemorrhage"):
        _stain(retina, painted, name)
    image = expose(raster, retina, facts.camera, stream("stray", *key), stream("noise", *key))
    found = _masks(raster, eye, facts, placed, layers) if masks else {}
    return Fundus(image, found, facts)


def _cover(retina: Floats, layers: dict[str, Floats], name: str) -> None:
    if name in layers:
        colour, opacity = COLOURS[name]
        share = np.float32(opacity) * layers[name]
        for c in range(3):
            retina[c] += share * (np.float32(colour[c]) - retina[c])


def _stain(retina: Floats, layers: dict[str, Floats], name: str) -> None:
    if name in layers:
        for c in range(3):
            retina[c] *= 1 - np.float32(1 - BLOOD[name][c]) * layers[name]


def _paint_vessels(raster: Raster, eye: Eye, beads: NDArray[np.floating], retina: Floats) -> None:
    """Let veins and arteries absorb light; a central reflex runs along the larger arteries and veins."""
    veins, arteries, reflex = raster.layer(), raster.layer(), raster.layer()
    eye.veins.draw(raster, veins, beading(eye.veins, beads)[0])
    eye.arteries.draw(raster, arteries)
    draw_branches(raster, reflex, (eye.arteries.trunks, 0.3, 1.0), (eye.veins.trunks, 0.24, 0.7))
    veins, arteries, reflex = raster.inside(veins), raster.inside(arteries), raster.inside(reflex)
    for c, (vein, artery, gain) in enumerate(((0.18, 0.08, 0.08), (0.58, 0.47, 0.42), (0.46, 0.36, 0.30))):
        retina[c] *= 1 - np.float32(vein) * veins
        retina[c] *= 1 - np.float32(artery) * arteries
        retina[c] *= 1 + np.float32(gain) * reflex


def _masks(
    raster: Raster, eye: Eye, facts: ImageTruth, placed: Placed, layers: dict[str, Floats]
) -> dict[str, NDArray[np.bool_]]:
    """Return the pixels that a lesion covers by at least `MASK_SHARE`, and the one that holds its centre."""
    field = field_of_view(raster, facts.camera) >= 0.5
    window = raster.window((eye.disc[0], eye.disc[1]), 1.5 * eye.disc_radius)
    disc = np.zeros((raster.side, raster.side), np.float32)
    if window is not None:
        disc[window] = disc_cover(raster, eye, *window)
    found = {"field_of_view": field, "optic_disc": (_shrink(raster, disc) >= 0.5) & field}
    if facts.lesions["venous_beading"]:
        factor, beaded = beading(eye.veins, placed["venous_beading"])
        layer = raster.layer()
        draw_branches(raster, layer, (replace(eye.veins.trunks, alive=beaded), factor, 1.0))
        layers = {**layers, "venous_beading": raster.inside(layer)}
    for name in LESIONS:
        if name in layers:
            mask = _shrink(raster, layers[name]) >= MASK_SHARE
            centre = (raster.pixels(placed[name]) - raster.margin) * (raster.size / raster.side)
            column, row = np.clip(centre, 0, raster.size - 1).astype(int).T
            mask[row, column] = True
            found[name] = mask & field
    return found


def _shrink(raster: Raster, layer: Floats) -> Floats:
    factor = raster.side // raster.size
    mean: Floats = layer.reshape(raster.size, factor, raster.size, factor).mean((1, 3))
    return mean
