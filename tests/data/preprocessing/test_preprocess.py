import hashlib

import numpy as np
import pytest
from PIL import Image

from retinabench.core.errors import InputError
from retinabench.data.datasets import synthetic
from retinabench.data.preprocessing.field_of_view import field_box
from retinabench.data.preprocessing.preprocess import Original, Recipe, describe_original, preprocess_bytes


def read_square(path, size):
    return preprocess_bytes(path.read_bytes(), Recipe(size), str(path))


def disc(height, width, centre, radius):
    y, x = np.mgrid[:height, :width]
    inside = (y - centre[0]) ** 2 + (x - centre[1]) ** 2 <= radius**2
    return np.where(inside[..., None], np.array([180, 90, 40], np.uint8), np.uint8(2)).astype(np.uint8)


@pytest.mark.parametrize("centre", [(100, 150), (100, 90), (110, 205)])
def test_the_disc_fills_the_square_wherever_it_lies(tmp_path, centre):
    Image.fromarray(disc(200, 300, centre, 80)).save(tmp_path / "x.png")
    square = read_square(tmp_path / "x.png", 64)
    lit = square.sum(axis=2) > 100
    # A disc covers π/4 of its square; 5 % for the edge pixels.
    assert lit.mean() == pytest.approx(np.pi / 4, rel=0.05)
    assert lit[32].all()
    assert lit[:, 32].all()


def test_a_clipped_disc_keeps_its_shape(tmp_path):
    Image.fromarray(disc(120, 300, (60, 150), 80)).save(tmp_path / "x.png")
    lit = read_square(tmp_path / "x.png", 64).sum(axis=2) > 100
    assert lit[32].all()
    assert not lit[0].any()
    assert not lit[-1].any()


def test_a_black_picture_is_used_whole():
    assert field_box(np.zeros((40, 60, 3), np.uint8)) == (0, 0, 60, 40)


def test_none_keeps_the_whole_photograph_and_its_shape(tmp_path):
    Image.new("RGB", (300, 200), (200, 100, 50)).save(tmp_path / "x.png")
    square = preprocess_bytes((tmp_path / "x.png").read_bytes(), Recipe(60, "none"), "x")
    assert (square[10:50] == (200, 100, 50)).all()
    assert not square[:10].any()
    assert not square[50:].any()


def test_hash_and_size_of_a_file_are_known_even_if_it_is_broken(tmp_path):
    Image.new("RGB", (31, 20)).save(tmp_path / "x.png")
    data = (tmp_path / "x.png").read_bytes()
    assert describe_original(data) == Original(hashlib.sha256(data).hexdigest(), len(data), 31, 20)
    assert describe_original(data[:50]).bytes == 50
    assert describe_original(b"text").width == describe_original(b"text").height == 0
    for broken in (data[:50], b"text"):
        with pytest.raises(InputError):
            preprocess_bytes(broken, Recipe(16), "x")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"size": 8}, "size 8"),
        ({"size": 64, "preprocess": "grahm"}, "Did you mean 'graham'"),
        ({"size": 64, "preprocess": "graham", "blur": 7}, "blur 7 is not one of 3, 5, 10, 20, 30"),
        ({"size": 64, "blur": 10}, "--preprocess graham"),
        ({"size": 64, "preprocess": "none", "published": True}, "--preprocess graham"),
    ],
)
def test_a_recipe_that_means_nothing_is_refused(fields, problem):
    with pytest.raises(InputError, match=problem):
        Recipe(**fields)


def test_drawn_retinas_take_every_preprocessing():
    source = "0:in_domain:3"
    crop, none, graham = (
        synthetic.read(source, None, Recipe(64, kind)) for kind in ("crop", "none", "graham")
    )
    assert np.array_equal(crop, none)
    assert graham.shape == (64, 64, 3)
    assert graham[0, 0].tolist() == [128, 128, 128]
    assert np.median(graham) == pytest.approx(128, abs=6)  # what varies slowly is gone


def test_scaled_decoding_is_close_to_full_decoding(shared):
    photograph = next(shared("data", "idrid", "images").glob("*.jpg"))
    small = read_square(photograph, 64).astype(float)
    full = np.asarray(Image.open(photograph).convert("RGB"))
    left, top, right, bottom = field_box(full)
    side = max(right - left, bottom - top)
    centre = ((left + right) / 2, (top + bottom) / 2)
    box = (round(centre[0] - side / 2), round(centre[1] - side / 2))
    square = (
        Image.fromarray(full)
        .crop((*box, box[0] + side, box[1] + side))
        .resize((64, 64), Image.Resampling.BOX)
    )
    # The JPEG decoder's own downscaling is not a box filter, and its box may end a pixel away.
    assert np.abs(small - np.asarray(square)).mean() < 3
