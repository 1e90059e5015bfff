"""Where lesions are placed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from retinabench.data.synthetic.anatomy import grow_eye
from retinabench.data.synthetic.camera import visible
from retinabench.data.synthetic.fundus import truth
from retinabench.data.synthetic.lesions import BLOOD, COLOURS, beading, draw_lesions, place
from retinabench.data.synthetic.raster import Raster
from retinabench.data.synthetic.streams import POPULATIONS, stream

Find = Callable[..., list[int]]


@pytest.mark.parametrize("population", POPULATIONS)
def test_every_counted_lesion_is_placed_in_the_visible_field(population: str, find: Find) -> None:
    some = find(lambda t: t.true_grade >= 1, 30, population)
    for i in some + find(lambda t: t.lesions["venous_beading"] + t.lesions["new_vessels"] > 0, 80, population):
        t = truth(i, population=population)
        placed = place(t.lesions, grow_eye(0, population, i), t.camera, stream("placing", 0, population, i))
        assert {name: len(at) for name, at in placed.items()} == t.lesions
        for name, at in placed.items():
            assert visible(at, t.camera).all(), name


def test_severe_haemorrhages_fill_all_quadrants(find: Find) -> None:
    for i in find(lambda t: t.true_grade == 3 and t.lesions["blot_haemorrhage"] > 40, 5):
        t = truth(i)
        placed = place(t.lesions, grow_eye(0, "in_domain", i), t.camera, stream("placing", 0, "in_domain", i))
        at = np.concatenate([placed["blot_haemorrhage"], placed["flame_haemorrhage"]])
        offset = at - [t.camera["gaze_x"], t.camera["gaze_y"]]
        quadrants = np.bincount(2 * (offset[:, 0] > 0) + (offset[:, 1] > 0), minlength=4)
        assert quadrants.min() >= 20


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
