import io
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import binary_erosion, gaussian_filter

from retinabench.core.errors import InputError
from retinabench.data.preprocessing import graham as graham_module
from retinabench.data.preprocessing import graham as module
from retinabench.data.preprocessing.graham import Circle, field_box, field_circle, graham, square_box, square_image
from retinabench.data.preprocessing.preprocess import Recipe, preprocess_bytes


def test_a_block_is_minimum_mean_and_maximum_of_the_contrast():
    image = np.random.default_rng(0).integers(40, 200, (224, 224, 3), dtype=np.uint8)
    field = binary_erosion(image.max(axis=2) > 16, iterations=6)
    green = image[..., 1].astype(float)
    local = gaussian_filter(green * field, 7.5) / gaussian_filter(field.astype(float), 7.5).clip(1e-6)
    block = (green - local)[80:88, 120:128]
    expected = 128 + 2 * np.array([block.min(), 2 * block.mean(), block.max()])
    assert module.extremes(image)[10, 15].tolist() == np.clip(np.rint(expected), 0, 255).tolist()


def photograph(height, width, x, y, radius, surround=3, noise=3, seed=0):
    """A disc with a dark rim, in a noisy surround, as an RGB image."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width] + 0.5
    distance = np.hypot(columns - x, rows - y) / radius
    light = np.where(distance <= 1, 1 - 0.6 * distance**2, 0)
    picture = np.array([170, 80, 40]) * light[..., None] + surround
    return Image.fromarray((picture + random.uniform(0, noise, picture.shape)).clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize(
    ("height", "width", "x", "y", "radius"),
    [
        (700, 1000, 500, 350, 330),  # centred
        (700, 1000, 420, 300, 280),  # off the centre
        (700, 1000, 480, 350, 430),  # cut above and below, as in IDRiD
        (700, 1000, 300, 350, 330),  # cut at the left
        (700, 1000, 800, 500, 330),  # cut at the right and below
        (1000, 1000, 350, 300, 150),  # small, in a corner
        (640, 640, 320, 320, 320),  # cropped to its box already
        (560, 640, 320, 280, 320),  # cropped to its box, cut above and below
    ],
)
def test_the_circle_is_found(height, width, x, y, radius):
    disc = field_circle(photograph(height, width, x, y, radius))
    # The search sees pixels of 1/256 of the longer side.
    assert disc == pytest.approx((x, y, radius), abs=max(height, width) / 256)


def stretched(image, gamma, noise, seed=0):
    """Lighten an image with noise in every pixel, as contrast stretching does."""
    random = np.random.default_rng(seed)
    lifted = np.asarray(image, float) + random.normal(8, noise, np.asarray(image).shape)
    return Image.fromarray((255 * (lifted.clip(0, 255) / 255) ** gamma).astype(np.uint8))


@pytest.mark.parametrize(("gamma", "noise"), [(1, 12), (0.6, 5), (0.4, 8)])
@pytest.mark.parametrize(("x", "y", "radius"), [(500, 350, 330), (420, 340, 430), (640, 350, 220)])
def test_a_noisy_or_lightened_surround_is_no_retina(gamma, noise, x, y, radius):
    image = stretched(photograph(700, 1000, x, y, radius), gamma, noise)
    assert field_circle(image) == pytest.approx((x, y, radius), abs=0.02 * radius)
    expected = (max(0, x - radius), max(0, y - radius), min(1000, x + radius), min(700, y + radius))
    assert field_box(np.asarray(image)) == pytest.approx(expected, abs=0.2 * radius)


def test_a_straight_border_is_no_circle_and_without_a_border_the_disc_is_the_lit_box():
    half = np.zeros((60, 60, 3), np.uint8)
    half[:, 30:] = 200
    assert field_circle(Image.fromarray(half)) == pytest.approx((45, 30, 30), abs=1)
    assert field_box(half) == (30, 0, 60, 60)
    inside = photograph(1000, 1000, 500, 500, 450).crop((350, 400, 650, 600))
    assert field_circle(inside) == pytest.approx((150, 100, 150), abs=1)
    assert field_circle(Image.new("RGB", (600, 400))) == pytest.approx((300, 200, 300), abs=1)
    assert field_circle(Image.new("RGB", (600, 400), (255, 255, 255))) == pytest.approx((300, 200, 300), abs=1)
    assert field_circle(Image.new("RGB", (1, 1), (9, 9, 9))).radius > 0


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
    cut = module.square_mask(spot, box)
    bright = square_image(image, right - left)[..., 2] > 150
    np.testing.assert_array_equal(cut, bright)
    assert cut.sum() == spot.sum()


@cache
def retina(side, seed=0):
    """A centred disc that fills 90 % of a square image: smooth light, vessels, noise."""
    random = np.random.default_rng(seed)
    rows, columns = (np.mgrid[:side, :side] + 0.5 - side / 2) / (0.45 * side)
    texture = gaussian_filter(random.normal(size=(side, side)), side / 60) * side / 12
    vessel = np.exp(-(((columns - 0.3 * np.sin(4 * rows)) / 0.02) ** 2)) * 30
    light = 120 - 40 * (rows**2 + columns**2) + texture - vessel
    rgb = np.where(np.hypot(rows, columns)[..., None] <= 1, light[..., None] * [1.3, 0.7, 0.4], 0)
    return Image.fromarray(rgb.clip(0, 255).astype(np.uint8))


def exact(rgb, disc, size, blur):
    """The formula at the image's resolution, in floats, for an image of the square's resolution."""
    values = np.asarray(rgb, float)
    average = gaussian_filter(values, (disc.radius / blur,) * 2 + (0,), mode="reflect", truncate=6)
    side = round(0.9 * disc.radius)
    left, top = round(disc.x) - side, round(disc.y) - side
    box = (slice(top, top + 2 * side), slice(left, left + 2 * side))
    place = np.arange(size) + 0.5 - size / 2
    inside = np.hypot(place, place[:, None]) <= size / 2
    return np.rint(4 * values - 4 * average + 128).clip(0, 255)[box], inside


@pytest.mark.parametrize("blur", [3, 10, 30])
def test_it_is_the_formula(blur):
    # At this radius a pixel of the image is a pixel of the square: nothing but the blur can differ.
    rgb = retina(700)
    disc = Circle(350.0, 350.0, 512 / 1.8)
    got = np.asarray(graham(rgb, disc, 512, blur), float)
    expected, inside = exact(rgb, disc, 512, blur)
    difference = np.abs(got - expected)[inside]
    # The average is kept in 8 bits once, and its blocks are 0.8 sigma wide: below one grey level after the factor 4.
    assert difference.mean() < 0.75
    assert difference.max() <= 3
    assert (got[~inside] == 128).all()


@pytest.mark.parametrize("cut", [(0, 60, 700, 640), (100, 0, 600, 560)])
def test_where_the_photograph_ends_it_is_mirrored_and_grey_beyond(cut):
    rgb = retina(700).crop(cut)
    disc = Circle(350.0 - cut[0], 350.0 - cut[1], 512 / 1.8)
    got = np.asarray(graham(rgb, disc, 512, 10), float)
    full = Image.fromarray(np.pad(np.asarray(rgb), ((256, 256), (256, 256), (0, 0)), "symmetric"))
    expected, inside = exact(full, Circle(disc.x + 256, disc.y + 256, disc.radius), 512, 10)
    there = np.asarray(Image.new("L", rgb.size, 255).crop(
        (round(disc.x) - 256, round(disc.y) - 256, round(disc.x) + 256, round(disc.y) + 256))) > 0  # fmt: skip
    assert np.abs(got - expected)[inside & there].mean() < 0.4
    assert (got[~(inside & there)] == 128).all()


def encoded(rgb, kind="PNG", **options):
    sink = io.BytesIO()
    rgb.save(sink, kind, **options)
    return sink.getvalue()


def test_place_and_frame_of_the_disc_do_not_matter():
    rgb = retina(900)
    moved = Image.new("RGB", (1700, 1100))
    moved.paste(rgb, (650, 30))
    one, two = (preprocess_bytes(encoded(photo), Recipe(256, "graham"), "x").astype(float) for photo in (rgb, moved))
    # The disc is found to about a pixel in 400 either time; edges of vessels shift by as much.
    assert np.abs(one - two).mean() < 3


@pytest.mark.parametrize("blur", [5, 30])
def test_on_a_centred_disc_it_is_what_was_published(blur):
    """Apart from the JPEG, the finer resampling and a rim's sixtieth: both see the same structure."""
    data = encoded(retina(1200))
    recipes = [Recipe(512, "graham", blur, published) for published in (False, True)]
    ours, theirs = (preprocess_bytes(data, recipe, "x").astype(float) for recipe in recipes)
    inside = np.hypot(*(np.mgrid[:512, :512] - 255.5)) < 240
    assert np.abs(ours - theirs)[inside].mean() < 3
    assert np.corrcoef(ours[inside].ravel(), theirs[inside].ravel())[0, 1] > 0.97


def test_scaled_decoding_changes_little_and_a_small_disc_is_decoded_finer():
    rgb = retina(1024).resize((4096, 4096), Image.Resampling.BICUBIC)
    coarse = preprocess_bytes(encoded(rgb, "JPEG", quality=92), Recipe(512, "graham"), "x").astype(float)
    fine = np.asarray(graham(rgb, field_circle(rgb), 512, 30), float)
    assert np.abs(coarse - fine).mean() < 3
    framed = Image.new("RGB", (4096, 4096))
    framed.paste(retina(1100), (1400, 1500))
    small = preprocess_bytes(encoded(framed, "JPEG", quality=95), Recipe(512, "graham"), "x").astype(float)
    direct = preprocess_bytes(encoded(retina(1100), "JPEG", quality=95), Recipe(512, "graham"), "x").astype(float)
    assert np.abs(small - direct).mean() < 4


def test_the_released_code_is_kept_from_asking_for_all_memory_or_none():
    tiny = Image.new("RGB", (4000, 3000))
    tiny.paste((200, 90, 40), (1990, 1400, 2010, 1600))
    with pytest.raises(InputError, match="too small"):
        preprocess_bytes(encoded(tiny), Recipe(64, "graham", published=True), "x")
    with pytest.raises(InputError, match="nothing of it is left"):
        preprocess_bytes(encoded(Image.new("RGB", (1, 5000), "red")), Recipe(64, "graham", published=True), "x")
    assert preprocess_bytes(encoded(Image.new("RGB", (300, 200))), Recipe(64, "graham", published=True), "x").std() == 0


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
    scaled = graham_module.scale_radius(small_image(), 12)
    assert scaled.tolist() == vectors["scaled"]
    for blur in (3, 10):
        subtracted = graham_module.subtract_local_average(scaled, blur, 12)
        assert subtracted.tolist() == vectors[f"subtracted_{blur}"]
        assert graham_module.mask_and_crop(subtracted, 12).tolist() == vectors[f"masked_{blur}"]


def test_scaling_equals_the_golden_vector(golden):
    radius = int(golden["in_target_radius"])
    assert np.array_equal(graham_module.scale_radius(bgr(golden, "in_image_bgr"), radius), bgr(golden, "out_scaled"))
    assert graham_module.scale_radius(golden["in_black"], radius).shape == tuple(golden["out_black_scaled_shape"])


@pytest.mark.parametrize("blur", BLURS)
def test_every_stage_equals_the_golden_vector(golden, blur):
    radius = int(golden["in_target_radius"])
    subtracted = graham_module.subtract_local_average(bgr(golden, "out_scaled"), blur, radius)
    assert np.array_equal(subtracted, bgr(golden, f"out_subtract_blur{blur}"))
    masked = graham_module.mask_and_crop(subtracted, radius)
    assert np.array_equal(masked, bgr(golden, f"out_masked_blur{blur}"))
    # The JPEG codec is the platform's: equal here with libjpeg-turbo 3, but another may round otherwise.
    difference = np.abs(graham_module.recompress(masked).astype(int) - bgr(golden, f"out_jpeg72_decoded_blur{blur}"))
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


@pytest.mark.parametrize(("shape", "scale"), [((90, 121), 0.5), ((91, 120), 0.5), ((70, 50), 1.7), ((200, 133), 0.173)])
def test_resizing_equals_opencv(shape, scale):
    cv2 = pytest.importorskip("cv2")
    image = np.random.default_rng(1).integers(0, 256, (*shape, 3), dtype=np.uint8)
    expected = cv2.resize(image, (0, 0), fx=scale, fy=scale)
    got = graham_module.resize_linear(image, scale)
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
    assert np.array_equal(graham_module.mask_and_crop(image, radius / 0.9 + 1e-9), expected)
