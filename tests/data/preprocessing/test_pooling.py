import numpy as np
import pytest
from scipy.ndimage import binary_erosion, gaussian_filter

from retinabench.data.preprocessing.pooling import extremes


def test_a_uniform_field_is_grey_and_a_lesion_of_one_pixel_survives():
    image = np.full((224, 224, 3), 120, np.uint8)
    flat = extremes(image)
    assert flat.shape == (28, 28, 3)
    assert (flat[4:-4, 4:-4] == 128).all()
    image[100, 100] = (120, 60, 120)
    spotted = extremes(image)
    assert spotted[12, 12, 0] < 20  # the minimum of its block, 60 levels below the local average, doubled
    assert spotted[12, 12, 2] - 128 <= 2
    assert abs(int(spotted[12, 12, 1]) - 128) <= 4


def test_a_block_is_minimum_mean_and_maximum_of_the_contrast():
    image = np.random.default_rng(0).integers(40, 200, (224, 224, 3), dtype=np.uint8)
    field = binary_erosion(image.max(axis=2) > 16, iterations=6)
    green = image[..., 1].astype(float)
    local = gaussian_filter(green * field, 7.5) / gaussian_filter(field.astype(float), 7.5).clip(1e-6)
    block = (green - local)[80:88, 120:128]
    expected = 128 + 2 * np.array([block.min(), 2 * block.mean(), block.max()])
    assert extremes(image)[10, 15].tolist() == np.clip(np.rint(expected), 0, 255).tolist()


def test_another_size_is_refused():
    with pytest.raises(ValueError, match=r"an image is \(224, 224, 3\), not \(64, 64, 3\)"):
        extremes(np.zeros((64, 64, 3), np.uint8))
