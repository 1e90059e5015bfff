"""The healthy eye: fellow eyes are alike, sizes are those of textbooks, the disc is where it is said to be."""

import numpy as np
import pytest

from retinabench.data.synthetic.anatomy import (
    Branches,
    disc_cover,
    draw_branches,
    grow,
    grow_choroid,
    grow_eye,
    grow_vessels,
    paint_background,
)
from retinabench.data.synthetic.raster import Raster

CAMERA = {"field_degrees": 50.0, "fill": 0.95, "gaze_x": 0.0, "gaze_y": 0.0}


def test_fellow_eyes_share_most_of_every_trait():
    """Correlation 0.81 / (0.81 + 0.19) of the latent traits; 40 patients: standard error 0.06 at this value."""
    eyes = [grow_eye(0, "in_domain", k) for k in range(80)]
    left, right = (np.array([np.log(eye.disc_radius) for eye in eyes[k::2]]) for k in (0, 1))
    assert np.corrcoef(left, right)[0, 1] > 0.81 - 3 * 0.06
    assert 1.8 < 2 * 7.3 * np.mean([eye.disc_radius for eye in eyes]) < 2.3  # diameter in mm
    again = grow_eye(0, "in_domain", 3)
    assert again.disc_radius == eyes[3].disc_radius
    np.testing.assert_array_equal(again.veins.trunks.points, eyes[3].veins.trunks.points)


def test_the_disc_covers_its_ellipse_and_is_the_brightest_place():
    eye = grow_eye(0, "in_domain", 0)
    raster = Raster(256, "left", CAMERA)
    whole = slice(0, raster.side)
    rim = disc_cover(raster, eye, whole, whole)
    area = np.pi * 0.93 * 1.05 * (eye.disc_radius * raster.scale) ** 2
    assert rim.sum() == pytest.approx(area, rel=0.01)
    light = paint_background(raster, eye, np.random.default_rng(0))
    assert light.shape == (3, 256, 256)
    inside, field = rim > 0.99, np.hypot(*np.meshgrid(raster.field, raster.field)) < 1
    assert np.median(light[1][inside]) > np.quantile(light[1][field & (rim == 0)], 0.99)


def straight(**changed):
    given = {"start": [[0.6, 0.5]], "heading": [0.0], "final": [0.0], "length": [0.4], "radius": [0.02]}
    return grow(np.random.default_rng(0), **(given | changed), bend=0.3, tortuosity=0.0, points=41)


def test_without_tortuosity_a_curve_without_bend_is_a_line():
    found = straight()
    np.testing.assert_allclose(found.points[0, :, 1], 0.5, atol=1e-6)
    np.testing.assert_allclose(found.points[0, :, 0], 0.6 + 0.4 * np.linspace(0, 1, 41), atol=1e-5)
    assert found.alive.all()
    assert found.radius[0, [0, -1]] == pytest.approx([0.02, 0.01])  # half of the calibre is lost


def test_the_heading_relaxes_exponentially():
    found = straight(final=[1.0])
    way = np.linspace(0, 0.4, 41)
    np.testing.assert_allclose(found.heading[0], 1 - np.exp(-way / 0.3), atol=1e-5)


def test_vessels_end_at_the_avascular_zone_of_the_fovea():
    found = straight(start=[[0.6, 0.0]], heading=[np.pi], final=[np.pi], length=[1.2])
    ends = int(found.alive[0].sum())
    assert 0 < ends < 41
    assert not found.alive[0, ends:].any()  # also beyond the zone
    assert np.hypot(*found.points[0, ends - 1]) > np.hypot(*found.points[0, ends])


def test_a_tree_has_eight_trunks_with_branches_and_twigs():
    rng = np.random.default_rng(1)
    disc = np.array([-0.8, 0.06])
    arteries, veins = grow_vessels(rng, disc, 0.15, tortuosity=0.4)
    for tree in (arteries, veins):
        assert [len(one.points) for one in tree.generations] == [8, 8 * 7, 8 * 7 * 2]
        assert np.hypot(*(tree.trunks.points[:, 0] - disc).T).max() < 2 * 0.15
    assert veins.trunks.radius[:, 0].mean() > arteries.trunks.radius[:, 0].mean()
    assert grow_choroid(rng).points.shape == (170, 32, 2)


def test_only_living_parts_are_drawn():
    alive = np.array([[True, True, True, False, False]])
    points = np.stack([np.linspace(-0.4, 0.4, 5), np.zeros(5)], axis=-1)[None]
    branch = Branches(points, np.zeros((1, 5)), np.full((1, 5), 0.03), alive)
    raster = Raster(256, "left", {"field_degrees": 50.0, "fill": 0.9, "gaze_x": 0.0, "gaze_y": 0.0})
    layer = raster.layer()
    draw_branches(raster, layer, (branch, 1.0, 1.0))
    seen = raster.x[raster.inside(layer).max(axis=0) > 0.5]
    assert seen.min() == pytest.approx(-0.43, abs=0.01)
    assert seen.max() == pytest.approx(0.03, abs=0.01)  # the last living point, and the round cap
