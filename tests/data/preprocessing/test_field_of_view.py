import numpy as np
import pytest
from PIL import Image

from retinabench.data.preprocessing.field_of_view import Circle, _contrast, field_box, field_circle


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
        (2000, 2000, 700, 600, 300),  # small, in a corner
        (640, 640, 320, 320, 320),  # cropped to its box already
        (560, 640, 320, 280, 320),  # cropped to its box, cut above and below
    ],
)
def test_the_circle_is_found(height, width, x, y, radius):
    disc = field_circle(photograph(height, width, x, y, radius))
    # The search sees pixels of 1/256 of the longer side.
    assert disc == pytest.approx((x, y, radius), abs=max(height, width) / 256)


@pytest.mark.parametrize("surround", [0, 12, 25])
def test_a_grey_surround_is_no_retina(surround):
    disc = field_circle(photograph(700, 1000, 450, 350, 300, surround, noise=8))
    assert disc == pytest.approx((450, 350, 300), abs=5)


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


def test_noise_makes_no_rim_where_there_is_none():
    inside = stretched(photograph(2000, 2000, 1000, 1000, 900).crop((600, 700, 1400, 1300)), 0.6, 10)
    assert field_box(np.asarray(inside)) == (0, 0, 800, 600)
    assert field_circle(inside) == pytest.approx((400, 300, 400), abs=1)


def test_a_straight_border_is_no_circle():
    half = np.zeros((60, 60, 3), np.uint8)
    half[:, 30:] = 200
    assert field_circle(Image.fromarray(half)) == pytest.approx((45, 30, 30), abs=1)
    assert field_box(half) == (30, 0, 60, 60)


def test_specks_and_a_straight_mask_do_not_move_it():
    picture = np.array(photograph(800, 1000, 500, 400, 370))
    picture[:120], picture[-120:] = 0, 0  # some cameras mask above and below
    picture[20:50, 20:120] = 255  # a date stamp
    assert field_circle(Image.fromarray(picture)) == pytest.approx((500, 400, 370), abs=5)


def test_without_a_border_the_disc_is_the_lit_box():
    inside = photograph(2000, 2000, 1000, 1000, 900).crop((700, 800, 1300, 1200))
    assert field_circle(inside) == pytest.approx((300, 200, 300), abs=1)
    assert field_circle(Image.new("RGB", (600, 400))) == pytest.approx((300, 200, 300), abs=1)
    assert field_circle(Image.new("RGB", (600, 400), (255, 255, 255))) == pytest.approx(
        (300, 200, 300), abs=1
    )
    assert field_circle(Image.new("RGB", (1, 1), (9, 9, 9))).radius > 0


def test_brightness_must_fall_along_most_of_a_rim():
    brightness = np.asarray(photograph(200, 200, 100, 100, 60, noise=1).convert("L"), np.float32)
    circle = Circle(100.0, 100.0, 60.0)
    whole = _contrast(brightness, circle)
    assert whole > 20
    bright = brightness.copy()
    bright[:, 100:] = brightness.max()  # half of the rim is not there
    assert _contrast(bright, circle) < 1
