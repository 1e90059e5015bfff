import io
import itertools

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter

from retinabench.core.errors import InputError
from retinabench.data.prepare import prepare
from retinabench.data.prepared import open_data
from retinabench.data.preprocessing.corruption import KINDS, STRENGTHS, Corruption, corrupt
from retinabench.data.preprocessing.preprocess import Recipe, preprocess_bytes

SIZE = 256


@pytest.fixture(scope="module")
def retina():
    """A textured disc of radius 120 on black, and the pixels that are well inside it."""
    grid = np.arange(SIZE) + 0.5 - SIZE / 2
    radius = np.hypot(grid, grid[:, None])
    noise = np.random.default_rng(0).standard_normal((SIZE, SIZE))
    texture = sum(6 * scale * gaussian_filter(noise, scale) for scale in (1, 3, 9, 27))  # detail at all scales
    image = np.stack([150 + texture, 80 + texture, 40 + texture / 2], axis=-1) * (radius < 120)[..., None]
    return np.clip(image, 0, 255).astype(np.uint8), radius < 112, radius > 126


def damage(retina, kind, strength, seed=0, name="a"):
    return corrupt(retina[0], Corruption(kind, strength, seed), name)


@pytest.mark.parametrize("kind", KINDS)
def test_each_strength_damages_more_and_none_changes_the_surround(retina, kind):
    image, _, outside = retina
    assert np.array_equal(damage(retina, kind, 0), image)
    made = [damage(retina, kind, strength) for strength in STRENGTHS]
    errors = [((one.astype(float) - image) ** 2).mean() for one in made]
    assert errors[0] > 0
    assert all(a < b for a, b in itertools.pairwise(errors))
    assert all(np.array_equal(one[outside], image[outside]) for one in made)
    assert all(one.dtype == np.uint8 and one.shape == image.shape for one in made)


@pytest.mark.parametrize("kind", ["motion", "cast", "vignette", "dust", "noise"])
def test_what_is_random_depends_on_image_and_seed_alone(retina, kind):
    first = damage(retina, kind, 3)
    assert np.array_equal(first, damage(retina, kind, 3))
    assert not np.array_equal(first, damage(retina, kind, 3, name="b"))
    assert not np.array_equal(first, damage(retina, kind, 3, seed=1))


def test_the_damage_has_the_stated_size(retina):
    image, inside, _ = retina
    before = image[inside].astype(float)

    def after(kind, strength):
        return damage(retina, kind, strength)[inside].astype(float)

    # Stops of light: the grey level to the power 2.2 is the light.
    assert np.mean(after("dark", 2) ** 2.2) / np.mean(before**2.2) == pytest.approx(2**-1.0, rel=0.01)
    assert np.mean(after("bright", 1) ** 2.2) / np.mean(before**2.2) == pytest.approx(2**0.4, rel=0.01)
    # std 10 at 512 px is 10 · 240 / 512 at a disc of 240 px; 118,000 values give it to 0.2 %, the fitted disc to 1 %.
    assert np.std(after("noise", 2) - before) == pytest.approx(10 * 240 / 512, rel=0.02)
    # The three gains have the geometric mean 1 and the stated spread.
    gains = np.log(after("cast", 1).mean(axis=0) / before.mean(axis=0))
    assert gains.mean() == pytest.approx(0, abs=0.005)
    assert gains.std() == pytest.approx(0.06, abs=0.005)
    for kind in ("defocus", "motion"):  # a mean of the retina alone: no dark rim, the same mean
        assert after(kind, 5).mean(axis=0) == pytest.approx(before.mean(axis=0), abs=1)


def test_a_blurred_point_is_the_disc_and_the_line(retina):
    """A single bright pixel becomes the kernel: a disc of radius r, a line of length l."""
    flat = np.zeros((SIZE, SIZE, 3), np.uint8)
    flat[retina[1] | ~retina[2]] = 100
    point = flat.copy()
    point[SIZE // 2, SIZE // 2] = 255
    spread = {}
    for kind in ("defocus", "motion"):
        seen = [corrupt(one, Corruption(kind, 5), "a")[100:156, 100:156, 0].astype(float) for one in (point, flat)]
        places = np.argwhere(seen[0] > seen[1])
        spread[kind] = np.ptp(places, axis=0) + 1
    # Radius 0.045 · 120 = 5.4 pixels, length 0.22 · 120 = 26.4; the rim of a kernel may round to nothing.
    assert all(9 <= extent <= 12 for extent in spread["defocus"])
    assert 22 <= np.hypot(*spread["motion"]) <= 30


def test_a_damaged_copy_keeps_its_patients_and_says_what_was_done(tmp_path, retina):
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a", "b"):
        Image.fromarray(retina[0]).save(source / f"{name}.png")
    (source / "labels.csv").write_text("image,grade,patient\na,0,p\nb,3,q\n")
    recipe = Recipe(64, corrupt=Corruption("cast", 4))
    clean = prepare("folder", tmp_path / "clean", recipe=Recipe(64), source=source, workers=1)
    damaged = prepare("folder", tmp_path / "damaged", recipe=recipe, source=source, workers=1)
    assert damaged.name == "folder-cast-4"
    assert np.array_equal(damaged.images([1])[0], corrupt(clean.images([1])[0], recipe.corrupt, "b"))
    both = open_data(clean.folder, damaged.folder)
    assert both.records.image_id.tolist() == ["a", "b", "folder-cast-4:a", "folder-cast-4:b"]
    assert both.records.patient_id.tolist() == ["p", "q"] * 2


def test_damage_comes_before_graham_and_drawn_images_refuse_that(tmp_path, retina):
    sink = io.BytesIO()
    Image.fromarray(retina[0]).save(sink, "PNG")
    corruption = Corruption("dark", 3)
    darker = io.BytesIO()
    Image.fromarray(corrupt(retina[0], corruption, "a")).save(darker, "PNG")
    found = preprocess_bytes(sink.getvalue(), Recipe(64, "graham", corrupt=corruption), "x", "a")
    assert np.array_equal(found, preprocess_bytes(darker.getvalue(), Recipe(64, "graham"), "x"))
    with pytest.raises(InputError, match="Graham"):
        prepare("synthetic", tmp_path / "x", recipe=Recipe(32, "graham", corrupt=corruption), images=32)
