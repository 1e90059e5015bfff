import io

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter

from retinabench.core.errors import InputError
from retinabench.data.preprocessing.field_of_view import Circle, field_circle
from retinabench.data.preprocessing.graham import graham
from retinabench.data.preprocessing.preprocess import Recipe, preprocess_bytes


def retina(side=900, seed=0):
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


@pytest.mark.parametrize("blur", [3, 5, 10, 20, 30])
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


@pytest.mark.parametrize("cut", [(0, 60, 700, 640), (100, 0, 700, 700), (0, 0, 600, 560)])
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
    one, two = (
        preprocess_bytes(encoded(photo), Recipe(256, "graham"), "x").astype(float) for photo in (rgb, moved)
    )
    # The disc is found to about a pixel in 400 either time; edges of vessels shift by as much.
    assert np.abs(one - two).mean() < 3


@pytest.mark.parametrize("size", [512, 256, 224, 64, 1024])
def test_any_size_shows_the_same(size):
    rgb = retina(1200)
    got = Image.fromarray(preprocess_bytes(encoded(rgb), Recipe(size, "graham", 10), "x"))
    reference = Image.fromarray(preprocess_bytes(encoded(rgb), Recipe(512, "graham", 10), "x"))
    assert got.size == (size, size)
    small = [np.asarray(one.resize((32, 32), Image.Resampling.BOX), float) for one in (got, reference)]
    assert np.abs(small[0] - small[1]).mean() < 1.5


@pytest.mark.parametrize("blur", [5, 10, 20, 30])
def test_on_a_centred_disc_it_is_what_was_published(blur):
    """Apart from the JPEG, the finer resampling and a rim's sixtieth: both see the same structure."""
    data = encoded(retina(1200))
    ours, theirs = (
        preprocess_bytes(data, Recipe(512, "graham", blur, published), "x").astype(float)
        for published in (False, True)
    )
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
    direct = preprocess_bytes(encoded(retina(1100), "JPEG", quality=95), Recipe(512, "graham"), "x").astype(
        float
    )
    assert np.abs(small - direct).mean() < 4


def test_the_number_of_threads_changes_no_pixel():
    limits = pytest.importorskip("threadpoolctl").threadpool_limits
    data, made = encoded(retina(1100), "JPEG"), []
    for threads in (1, 2, 3):
        with limits(threads):
            made.append([preprocess_bytes(data, Recipe(512, "graham", blur), "x") for blur in (3, 10, 30)])
    assert all(np.array_equal(made[0], other) for other in made[1:])


@pytest.mark.parametrize("size", [(1, 1), (3, 900), (900, 2), (40, 40)])
def test_odd_shapes_and_empty_pictures_give_a_grey_picture(size):
    for colour in ((0, 0, 0), (255, 255, 255), (120, 60, 30)):
        square = preprocess_bytes(encoded(Image.new("RGB", size, colour)), Recipe(64, "graham"), "x")
        assert square.shape == (64, 64, 3)
        assert np.abs(square.astype(int) - 128).max() <= 2


def test_the_released_code_is_kept_from_asking_for_all_memory_or_none():
    tiny = Image.new("RGB", (4000, 3000))
    tiny.paste((200, 90, 40), (1990, 1400, 2010, 1600))
    with pytest.raises(InputError, match="too small"):
        preprocess_bytes(encoded(tiny), Recipe(64, "graham", published=True), "x")
    with pytest.raises(InputError, match="nothing of it is left"):
        preprocess_bytes(
            encoded(Image.new("RGB", (1, 5000), "red")), Recipe(64, "graham", published=True), "x"
        )
    assert (
        preprocess_bytes(
            encoded(Image.new("RGB", (300, 200))), Recipe(64, "graham", published=True), "x"
        ).std()
        == 0
    )
