"""The canvas: coordinates, areas of what is drawn on it, and the same surface at every size."""

import numpy as np
import pytest

from retinabench.data.synthetic.raster import Raster, spline_basis

CAMERA = {"field_degrees": 50.0, "fill": 0.9, "gaze_x": 0.1, "gaze_y": -0.2}


@pytest.mark.parametrize("eye", ["left", "right"])
def test_pixels_and_coordinates_agree(eye):
    """The centre of pixel (column c, row r) has the coordinates x[c], y[r]."""
    raster = Raster(32, eye, CAMERA)
    assert raster.side == 64
    places = np.stack([raster.x[[3, 40]], raster.y[[10, 62]]], axis=1)
    expected = np.array([[3, 10], [40, 62]]) + raster.margin + 0.5
    np.testing.assert_allclose(raster.pixels(places), expected, atol=1e-3)
    assert (raster.x[-1] > raster.x[0]) == (eye == "left")
    assert raster.layer().shape == (64 + 2 * raster.margin,) * 2
    assert raster.inside(raster.layer()).shape == (64, 64)


def test_a_bump_is_a_gaussian_and_a_window_what_is_near():
    raster = Raster(256, "left", CAMERA)
    row, column = 100, 150
    centre = float(raster.x[column]), float(raster.y[row])
    bump = raster.bump(centre, 0.1, 0.2)
    assert bump[row, column] == pytest.approx(1)
    away = np.exp(-0.5 * ((raster.x[180] - centre[0]) / 0.1) ** 2 - 0.5 * ((raster.y[80] - centre[1]) / 0.2) ** 2)
    assert bump[80, 180] == pytest.approx(away, rel=1e-5)
    rows, columns = raster.window(centre, 0.1)
    assert np.abs(raster.x[columns] - centre[0]).max() < 0.1 <= abs(raster.x[columns.stop] - centre[0])
    assert np.abs(raster.y[rows] - centre[1]).max() < 0.1
    assert raster.window((5, 5), 0.1) is None


@pytest.mark.parametrize("radius", [0.08, 0.002])
def test_the_mass_of_a_spot_is_its_area_also_below_a_pixel(radius):
    """pi r^2 in pixels within 3 %, on average over places between pixels: the edge is a pixel wide and keeps the mass."""
    raster = Raster(256, "left", CAMERA)
    masses = []
    for k in range(40):
        layer = raster.layer()
        place = np.array([[0.1, -0.2]]) + np.array([[k * 0.6180, k * 0.7549]]) % 1 / raster.scale
        raster.blobs(layer, place, np.array([radius]), softness=0.0)
        masses.append(layer.sum())
    assert np.mean(masses) == pytest.approx(np.pi * (radius * raster.scale) ** 2, rel=0.03)


def test_the_mass_of_a_stroke_is_length_times_calibre():
    """The two round caps add pi r^2; half a per cent is left to anti-aliasing."""
    raster = Raster(256, "left", CAMERA)
    layer = raster.layer()
    start, end = np.array([[0.04, -0.23]]), np.array([[0.16, -0.17]])
    raster.strokes(layer, start, end, np.array([0.03]), strength=0.5)
    length, radius = np.hypot(0.12, 0.06) * raster.scale, 0.03 * raster.scale
    assert layer.sum() == pytest.approx(0.5 * (2 * radius * length + np.pi * radius**2), rel=0.005)
    before = layer.copy()
    raster.strokes(layer, start, end, np.array([0.03]), strength=0.5)
    np.testing.assert_array_equal(layer, before)  # the maximum, not the sum


def test_a_surface_drawn_small_is_the_area_mean_of_the_same_drawn_large():
    small, large = spline_basis(16, 9), spline_basis(64, 9)
    np.testing.assert_allclose(large.reshape(16, 4, 9).mean(axis=1), small, atol=1e-6)
    np.testing.assert_allclose(small.sum(axis=1), 1, atol=1e-6)  # B-splines sum to one
