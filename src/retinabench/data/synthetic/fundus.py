"""Draw the fundus image of an index, with the masks of its lesions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.data.synthetic.anatomy import Eye, disc_cover, grow_eye, paint_background
from retinabench.data.synthetic.camera import expose, field_of_view
from retinabench.data.synthetic.lesions import BLOOD, COLOURS, beading, draw_lesions
from retinabench.data.synthetic.placing import Placed, place
from retinabench.data.synthetic.raster import Floats, Raster
from retinabench.data.synthetic.streams import stream
from retinabench.data.synthetic.truth import LESIONS, ImageTruth, truth
from retinabench.data.synthetic.vessels import draw_branches

SMALLEST, LARGEST = 16, 2048

MASK_SHARE = 0.35
"""A pixel belongs to a lesion from this share times opacity on; the faintest haemorrhages reach 0.45."""


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
    if isinstance(size, bool) or not isinstance(size, (int, np.integer)) or not SMALLEST <= size <= LARGEST:
        raise InputError(
            f"size is {size!r}", hint=f"Give the side in pixels, a whole number from {SMALLEST} to {LARGEST}."
        )
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
        layers = {**layers, "venous_beading": _beading_layer(raster, eye, placed["venous_beading"])}
    for name in LESIONS:
        if name in layers:
            mask = _shrink(raster, layers[name]) >= MASK_SHARE
            centre = (raster.pixels(placed[name]) - raster.margin) * (raster.size / raster.side)
            column, row = np.clip(centre, 0, raster.size - 1).astype(int).T
            mask[row, column] = True
            found[name] = mask & field
    return found


def _beading_layer(raster: Raster, eye: Eye, centres: NDArray[np.floating]) -> Floats:
    """Return the layer of the beaded stretches alone."""
    factor, beaded = beading(eye.veins, centres)
    layer = raster.layer()
    draw_branches(raster, layer, (replace(eye.veins.trunks, alive=beaded), factor, 1.0))
    return raster.inside(layer)


def _shrink(raster: Raster, layer: Floats) -> Floats:
    factor = raster.side // raster.size
    mean: Floats = layer.reshape(raster.size, factor, raster.size, factor).mean((1, 3))
    return mean
