import numpy as np
import pytest
from PIL import Image, ImageFilter

from retinabench.data.datasets import synthetic as synthetic_dataset
from retinabench.data.prepared.folder import open_prepared
from retinabench.data.synthetic.fundus import draw
from retinabench.inspection.pixels import read_pixels
from support.helpers import make_retinas

N, SIDE = 12, 96


@pytest.fixture(scope="module")
def images():
    return np.stack([draw(k, size=SIDE, masks=False).image for k in range(N)])


def seen(tmp_path, images):
    records = synthetic_dataset.records(None, images=max(len(images), 32)).take(np.arange(len(images)))
    return read_pixels(open_prepared(make_retinas(tmp_path / "data", records, images)))


def test_brightness_is_the_grey_inside_the_field_of_view_and_blur_lowers_sharpness(tmp_path, images):
    flat = np.full((SIDE, SIDE, 3), 100, np.uint8)
    flat[:10] = flat[-10:] = 0  # outside the square that is read
    blurred = [Image.fromarray(image).filter(ImageFilter.GaussianBlur(1)) for image in images[:10]]
    found = seen(tmp_path, np.stack([flat, *images[:10], *map(np.asarray, blurred)]))
    assert found.brightness[0] == 100
    assert found.sharpness[0] == 0
    assert (found.sharpness[11:] < found.sharpness[1:11]).all()
    assert found.brightness[11:] == pytest.approx(found.brightness[1:11], rel=0.01)


def test_equal_images_have_equal_digests(tmp_path, images):
    found = seen(tmp_path, images[[0, 1, 0]])
    assert found.digest[0] == found.digest[2] != found.digest[1]
