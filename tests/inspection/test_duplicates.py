import json

import numpy as np
import pytest
from PIL import Image, ImageFilter, ImageOps

from conftest import shared_path
from retinabench.cli.main import run
from retinabench.data.dataset import make_records
from retinabench.data.datasets import synthetic as synthetic_dataset
from retinabench.data.prepare import prepare
from retinabench.data.prepared import open_prepared
from retinabench.data.preprocessing.corruption import specks_shadow
from retinabench.data.preprocessing.preprocess import Recipe, preprocess
from retinabench.data.synthetic.fundus import draw
from retinabench.inspection import duplicates
from retinabench.inspection.duplicates import COMPARED, equal_pairs, likely_pairs, read_pixels
from retinabench.inspection.inspection import inspect_data
from support.helpers import make_prepared, make_retinas


def test_a_folder_without_a_table_of_files_is_inspected_all_the_same(tmp_path, capsys):
    data = make_prepared(tmp_path / "data")
    (data / "files.parquet").unlink(missing_ok=True)
    assert run(["inspect", str(data), "--out", str(tmp_path / "out"), "-q"]) == 0
    found = json.loads((tmp_path / "out" / "inspection.json").read_text())
    assert (found["read_files"], found["cameras"], found["bad_files"]) == (False, [], [])
    assert "No copies." in capsys.readouterr().out


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


@pytest.mark.parametrize("n", [1, 2, 500])
def test_equal_pairs_join_exactly_what_is_equal(n):
    key = np.random.default_rng(0).integers(0, 200, n).astype(str)
    key[::7] = ""
    pairs = equal_pairs(key)
    groups = {k: set(np.flatnonzero(key == k).tolist()) for k in set(key.tolist()) if k and (key == k).sum() > 1}
    found = {}
    for first, second in pairs.tolist():
        assert key[first] == key[second] != ""
        found.setdefault(key[first], {first}).add(second)
    assert found == groups
    # A chain would do as well, but a repeat for each member beyond the first is all it takes.
    assert len(pairs) == sum(len(group) - 1 for group in groups.values())


@pytest.mark.parametrize("n", [1, 3, 511, 1300])
def test_likely_pairs_equal_brute_force_across_block_borders(n, monkeypatch):
    monkeypatch.setattr(duplicates, "CELLS", 2**18)
    random = np.random.default_rng(n)
    vectors = random.normal(size=(n, 20))
    vectors[n // 2 :] = vectors[: n - n // 2] + random.normal(0, 0.2, (n - n // 2, 20))
    unit = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -2)
    near = np.argwhere(cosines >= 0.9).tolist()
    near += [[i, j] for i, row in enumerate(cosines) for j in np.argsort(-row)[: min(2, n - 1)].tolist()]
    assert {tuple(pair) for pair in likely_pairs(unit, 0.9, 2).tolist()} == {tuple(sorted(p)) for p in near}


@pytest.fixture(scope="module")
def idrid(tmp_path_factory):
    source = shared_path("data", "idrid")
    return prepare("idrid", tmp_path_factory.mktemp("idrid") / "64", recipe=Recipe(64), source=source, workers=1)


KNOWN = {
    ("IDRiD_064_test", "IDRiD_118_train"): {3, 0}, ("IDRiD_021_train", "IDRiD_391_train"): {1, 2},
    ("IDRiD_028_train", "IDRiD_327_train"): {4, 3}, ("IDRiD_045_train", "IDRiD_333_train"): {2},
    ("IDRiD_073_train", "IDRiD_375_train"): {2}, ("IDRiD_079_train", "IDRiD_279_train"): {1},
}  # fmt: skip

TWO_EXPOSURES = ("IDRiD_013_train", "IDRiD_397_train")
"""Two images of one eye from one visit, with grades 3 and 2: different bytes, found by their pixels alone."""


@pytest.mark.slow
def test_idrid_s_six_pairs_and_two_images_of_one_eye_are_found_and_nothing_else(idrid):
    assert len(idrid.records) > COMPARED  # the likely pairs alone are looked at
    found = inspect_data(idrid, read_images=True)
    ids = {tuple(idrid.records.image_id[list(group.rows)].tolist()): group for group in found.groups}
    assert set(ids) == {*KNOWN, TWO_EXPOSURES}
    for pair, grades in KNOWN.items():
        assert ids[pair].kind in ("equal bytes", "equal pixels")
        assert set(ids[pair].classes) == grades
        assert ids[pair].conflicts == (len(grades) > 1)
        assert ids[pair].crosses == (pair == ("IDRiD_064_test", "IDRiD_118_train"))
    assert ids[TWO_EXPOSURES].kind == "same retina"
    [pair] = ids[TWO_EXPOSURES].pairs
    assert pair.alignment is not None
    assert pair.alignment.quarter > 0.7
    assert (pair.alignment.mirrored, abs(pair.alignment.degrees) < 3) == (False, True)
    assert ids[TWO_EXPOSURES].conflicts
    assert found.groups[0].crosses  # the worst first
    assert [leak.splits for leak in found.leaks] == [("train", "test")]


DIRTY = 8
# Of the first photographs: how each is saved again.
AGAIN = (
    lambda image: ImageOps.mirror(image).rotate(12, Image.Resampling.BICUBIC, expand=True),
    lambda image: image.crop((60, 40, 1072, 712)),
    lambda image: image.point(lambda level: round(0.7 * level)),
    lambda image: image.resize((429, 285)),
)


def behind_a_dirty_lens(path):
    """A photograph out of focus, with 200 specks, smears and a scratch at the places that they have in every photograph."""
    image = Image.open(path).convert("RGB").filter(ImageFilter.GaussianBlur(4))
    sides = zip((1.2, 0.8), image.size, strict=True)
    x, y = (np.linspace(-side, side, pixels, dtype=np.float32) for side, pixels in sides)
    random = np.random.default_rng(0)
    place = random.uniform(-1, 1, (2, 200, 1)).astype(np.float32)
    sigma, depth = (random.uniform(*of, (200, 1)).astype(np.float32) for of in ((0.006, 0.04), (0.1, 0.5)))
    light = specks_shadow(x, y, place, sigma, depth)
    light *= 1 - 0.5 * (np.abs(y[:, None] - 0.4 * x + 0.1) < 0.008)
    return Image.fromarray((np.asarray(image) * light[..., None]).astype(np.uint8))


def test_one_dirty_lens_before_many_retinas_makes_no_copies_and_real_copies_are_found(tmp_path, capsys):
    paths = [shared_path("data", "idrid", "images", f"IDRiD_{k:03d}_test.jpg") for k in range(1, DIRTY + 1)]
    dirty = [behind_a_dirty_lens(path) for path in paths]
    images = [*dirty, *(again(image) for again, image in zip(AGAIN, dirty, strict=False))]
    split = ["train"] * DIRTY + ["validation"] * len(AGAIN)
    names = [f"i{k}" for k in range(len(images))]
    records = make_records(names, [0] * DIRTY + [3] * len(AGAIN), split=split)
    data = make_retinas(tmp_path / "data", records, np.stack([preprocess(image, Recipe(128)) for image in images]))
    assert run(["inspect", str(data), "--out", str(tmp_path / "out"), "-q"]) == 0
    found = json.loads((tmp_path / "out" / "inspection.json").read_text())
    groups = [[image["image_id"] for image in group["images"]] for group in found["duplicates"]]
    assert groups == [[names[k], names[DIRTY + k]] for k in range(len(AGAIN))]
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("Copies across splits."))
    assert "4 groups with copies in different splits (4 in train and validation)" in line
    assert "test" not in line
