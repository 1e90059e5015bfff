"""Equal to the released code: golden vectors stage by stage, and OpenCV itself on a real image."""

import json
from pathlib import Path

import numpy as np
import pytest

from retinabench.data.preprocessing import graham_published as published
from retinabench.data.preprocessing.preprocess import Recipe, preprocess_bytes

BLURS = (3, 5, 10, 20, 30)


@pytest.fixture(scope="module")
def golden():
    from conftest import shared_path

    return np.load(shared_path("golden", "retina", "preprocess.npz"))


def bgr(golden, name):
    return golden[name][..., ::-1]


def small_image():
    """A lit circle with gradients and stripes, 40 x 52 pixels."""
    y, x = np.mgrid[0:40, 0:52]
    lit = (x - 26) ** 2 + (y - 20) ** 2 <= 17**2
    colour = np.stack([40 + 3 * x, 90 + 2 * y, 60 + x + y], -1) + 20 * np.sin(x / 3.0)[..., None]
    return np.where(lit[..., None], colour, 3).round().clip(0, 255).astype(np.uint8)


def test_every_stage_equals_the_vectors_that_opencv_computed():
    vectors = json.loads((Path(__file__).parents[2] / "vectors" / "graham_published.json").read_text())
    scaled = published.scale_radius(small_image(), 12)
    assert scaled.tolist() == vectors["scaled"]
    for blur in (3, 10):
        subtracted = published.subtract_local_average(scaled, blur, 12)
        assert subtracted.tolist() == vectors[f"subtracted_{blur}"]
        assert published.mask_and_crop(subtracted, 12).tolist() == vectors[f"masked_{blur}"]


def test_scaling_equals_the_golden_vector(golden):
    radius = int(golden["in_target_radius"])
    assert np.array_equal(
        published.scale_radius(bgr(golden, "in_image_bgr"), radius), bgr(golden, "out_scaled")
    )
    assert published.scale_radius(golden["in_black"], radius).shape == tuple(golden["out_black_scaled_shape"])


@pytest.mark.parametrize("blur", BLURS)
def test_every_stage_equals_the_golden_vector(golden, blur):
    radius = int(golden["in_target_radius"])
    subtracted = published.subtract_local_average(bgr(golden, "out_scaled"), blur, radius)
    assert np.array_equal(subtracted, bgr(golden, f"out_subtract_blur{blur}"))
    masked = published.mask_and_crop(subtracted, radius)
    assert np.array_equal(masked, bgr(golden, f"out_masked_blur{blur}"))
    # The JPEG codec is the platform's: equal here with libjpeg-turbo 3, but another may round otherwise.
    difference = np.abs(
        published.recompress(masked).astype(int) - bgr(golden, f"out_jpeg72_decoded_blur{blur}")
    )
    assert difference.mean() < 1


def test_the_whole_path_equals_opencv_on_a_photograph(shared):
    cv2 = pytest.importorskip("cv2")
    data = sorted(shared("data", "idrid", "images").glob("*.jpg"))[7].read_bytes()
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flags=3)
    row = image[image.shape[0] // 2].sum(axis=1)
    scale = 300 / ((row > row.mean() / 10).sum() / 2)
    scaled = cv2.resize(image, (0, 0), fx=scale, fy=scale)
    subtracted = cv2.addWeighted(scaled, 4, cv2.GaussianBlur(scaled, (0, 0), 300 / 30), -4, 128)
    mask = np.zeros_like(subtracted)
    x, y = mask.shape[1] // 2, mask.shape[0] // 2
    cv2.circle(mask, (x, y), 270, (1, 1, 1), -1, 8, 0)
    masked = (subtracted * mask + (1 - mask) * 128)[max(y - 270, 0) : y + 270, max(x - 270, 0) : x + 270]
    decoded = cv2.imdecode(cv2.imencode(".jpg", masked, [cv2.IMWRITE_JPEG_QUALITY, 72])[1], 3)[..., ::-1]
    expected = cv2.resize(decoded.astype(np.float32), (512, 512), interpolation=cv2.INTER_LINEAR)
    got = preprocess_bytes(data, Recipe(512, "graham", 30, published=True), "x.jpg")
    # TensorFlow's resize and OpenCV's of floats have the same formula; ties of the last rounding may fall otherwise.
    assert np.abs(got - np.rint(expected)).max() <= 1
    assert (got != np.rint(expected)).mean() < 0.001


@pytest.mark.parametrize(
    ("shape", "scale"), [((90, 121), 0.5), ((91, 120), 0.5), ((70, 50), 1.7), ((200, 133), 0.173)]
)
def test_resizing_equals_opencv(shape, scale):
    cv2 = pytest.importorskip("cv2")
    image = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
    expected = cv2.resize(image, (0, 0), fx=scale, fy=scale)
    got = published.resize_linear(image, scale)
    assert got.shape == expected.shape
    # At exactly one half an odd edge is an average of two, whose tie OpenCV rounds to even.
    assert np.abs(got.astype(int) - expected).max() <= (scale == 0.5)


@pytest.mark.parametrize("radius", [1, 2, 9, 54, 270])
def test_the_circle_is_opencvs(radius):
    cv2 = pytest.importorskip("cv2")
    image = np.full((601, 601, 3), 7, np.uint8)
    mask = np.zeros_like(image)
    cv2.circle(mask, (300, 300), radius, (1, 1, 1), -1, 8, 0)
    expected = np.where(mask > 0, image, 128)[300 - radius : 300 + radius, 300 - radius : 300 + radius]
    assert np.array_equal(published.mask_and_crop(image, radius / 0.9 + 1e-9), expected)
