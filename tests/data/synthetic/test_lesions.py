"""The appearance of lesions: where they lie, how large they are, and how veins are beaded."""

import numpy as np
import pytest

from retinabench.data.synthetic.anatomy import grow_eye
from retinabench.data.synthetic.lesions import BLOOD, COLOURS, beading, draw_lesions
from retinabench.data.synthetic.raster import Raster

CAMERA = {"field_degrees": 50.0, "fill": 0.95, "gaze_x": 0.0, "gaze_y": 0.0}
EYE = grow_eye(0, "in_domain", 0)


def test_veins_are_beaded_around_the_given_points_alone():
    trunk, middle = EYE.veins.trunks.points[2], 60
    factor, beaded = beading(EYE.veins, trunk[[middle]])
    assert np.flatnonzero(beaded.any(axis=1)).tolist() == [2]
    step = np.arange(len(trunk))
    stretch = np.clip(1.2 - np.abs(step - middle) / 22, 0, 1)
    np.testing.assert_allclose(factor[2], 1 + 0.38 * stretch * np.sin(2 * np.pi * step / 5.2))
    assert (np.delete(factor, 2, axis=0) == 1).all()
    assert not beading(EYE.veins, np.empty((0, 2)))[1].any()


@pytest.mark.parametrize("kind", ["microaneurysm", "blot_haemorrhage", "hard_exudate", "cotton_wool_spot"])
def test_a_lesion_lies_around_its_centre(kind):
    raster = Raster(256, "left", CAMERA)
    centre = np.array([[0.3, -0.4]])
    placed = {name: centre if name == kind else np.empty((0, 2)) for name in (*BLOOD, *COLOURS)}
    found = draw_lesions(raster, EYE, placed, np.random.default_rng(0))
    assert list(found) == [kind]
    layer = found[kind]
    assert layer.shape == (256, 256)
    assert 0 < layer.max() <= 1
    mass = layer / layer.sum()
    assert mass.sum(axis=0) @ raster.x == pytest.approx(0.3, abs=0.05)
    assert mass.sum(axis=1) @ raster.y == pytest.approx(-0.4, abs=0.05)


def test_every_kind_has_one_colour():
    assert not set(BLOOD) & set(COLOURS)
