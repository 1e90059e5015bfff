"""The healthy eye: fellow eyes are alike, sizes are those of textbooks, the disc is where it is said to be."""

import numpy as np
import pytest

from retinabench.data.synthetic.anatomy import disc_cover, grow_eye, paint_background
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
