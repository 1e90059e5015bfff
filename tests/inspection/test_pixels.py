import io

import numpy as np
import pytest
from PIL import Image, ImageFilter

from retinabench.data.datasets import synthetic as synthetic_dataset
from retinabench.data.prepared import open_prepared
from retinabench.data.synthetic.fundus import draw
from retinabench.inspection.duplicates import SAME_DETAIL, SIMILAR
from retinabench.inspection.pixels import detail, read_pixels
from support.helpers import make_retinas

N, SIDE = 60, 96


def jpeg(image, quality):
    with io.BytesIO() as out:
        image.save(out, "JPEG", quality=quality)
        return Image.open(out).convert("RGB")


CHANGES = {
    "saved again": lambda image: jpeg(image, 75),
    "half the size and back": lambda image: image.resize((48, 48), Image.Resampling.BOX).resize((SIDE, SIDE)),
    "darker": lambda image: image.point(lambda value: round(0.7 * value)),
}


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


@pytest.mark.parametrize("change", CHANGES)
def test_copies_are_alike_and_other_images_are_not(tmp_path, images, change):
    copies = np.stack([np.asarray(CHANGES[change](Image.fromarray(image))) for image in images[:20]])
    unit = seen(tmp_path, np.concatenate([images, copies])).standardised()
    cosines = unit @ unit.T
    own = cosines[np.arange(20), N + np.arange(20)]
    # Drawn images of 96 px are noisier than real ones, so that a tenth may fall below.
    assert np.quantile(own, 0.1) > SIMILAR
    same = [float(detail(images[k]) @ detail(copies[k])) for k in range(20)]
    assert np.median(same) > SAME_DETAIL
    unlike = cosines[:N, :N][np.triu_indices(N, 1)]
    assert unlike.max() < SIMILAR


def test_equal_images_have_equal_digests(tmp_path, images):
    found = seen(tmp_path, images[[0, 1, 0]])
    assert found.digest[0] == found.digest[2] != found.digest[1]
