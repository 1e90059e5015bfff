"""Image and mask are cut by one box, so that a mask stays on its image."""

import numpy as np
from PIL import Image

from retinabench.data.preprocessing.squares import square_box, square_image, square_mask


def wide_image():
    """A bright disc of radius 20 around column 70, row 24, in 120 x 48 pixels, and the mask of a spot on it."""
    rows, columns = np.mgrid[:48, :120]
    disc = (rows - 24) ** 2 + (columns - 70) ** 2 < 20**2
    spot = (rows - 14) ** 2 + (columns - 78) ** 2 < 4**2
    pixels = np.where(disc[..., None], (150, 80, 40), 0).astype(np.uint8)
    pixels[spot] = (250, 240, 200)
    return Image.fromarray(pixels), spot


def test_the_whole_image_is_padded_to_a_square():
    image, _ = wide_image()
    box = square_box(image, "whole")
    assert box == (0, -36, 120, 84)
    square = square_image(image, 120, "whole")
    np.testing.assert_array_equal(square[36:84], np.asarray(image))
    assert square[:36].max() == square[84:].max() == 0


def test_a_field_of_view_fills_the_square_and_its_mask_stays_on_it():
    image, spot = wide_image()
    left, top, right, bottom = box = square_box(image)
    assert right - left == bottom - top
    assert abs((left + right) / 2 - 70) <= 1
    assert abs((top + bottom) / 2 - 24) <= 1
    assert 38 <= right - left <= 42
    cut = square_mask(spot, box)
    bright = square_image(image, right - left)[..., 2] > 150
    np.testing.assert_array_equal(cut, bright)
    assert cut.sum() == spot.sum()
