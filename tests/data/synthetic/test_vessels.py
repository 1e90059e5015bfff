"""Curves of vessels: length, calibre and course by their formulas."""

import numpy as np
import pytest

from retinabench.data.synthetic.raster import Raster
from retinabench.data.synthetic.vessels import Branches, draw_branches, grow, grow_choroid, grow_vessels


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
