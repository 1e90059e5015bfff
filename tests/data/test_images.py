import numpy as np
import pytest
from PIL import Image

from retinabench.data.disc import field_of_view
from retinabench.data.images import Recipe, picture
from retinabench.errors import InputError


def read_square(path, size):
    return picture(path.read_bytes(), Recipe(size), str(path))


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
    assert field_of_view(np.zeros((40, 60, 3), np.uint8)) == (0, 0, 60, 40)


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK", "P"])
def test_other_colour_modes_become_rgb(tmp_path, mode):
    name = "x.tif" if mode == "CMYK" else "x.png"
    Image.fromarray(disc(64, 64, (32, 32), 30)).convert(mode).save(tmp_path / name)
    assert read_square(tmp_path / name, 32).shape == (32, 32, 3)


def test_bad_files_are_named(tmp_path):
    (tmp_path / "text.jpg").write_text("no picture")
    Image.fromarray(disc(300, 300, (150, 150), 140)).save(tmp_path / "whole.jpg")
    content = (tmp_path / "whole.jpg").read_bytes()
    (tmp_path / "torn.jpg").write_bytes(content[: len(content) // 2])
    for name, problem in (("text.jpg", "no"), ("torn.jpg", "broken")):
        with pytest.raises(InputError, match=problem) as caught:
            read_square(tmp_path / name, 32)
        assert name in str(caught.value)


def test_scaled_decoding_is_close_to_full_decoding(shared):
    photograph = next(shared("data", "idrid", "images").glob("*.jpg"))
    small = read_square(photograph, 64).astype(float)
    full = np.asarray(Image.open(photograph).convert("RGB"))
    left, top, right, bottom = field_of_view(full)
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
