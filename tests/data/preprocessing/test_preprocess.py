"""Files of unknown quality: what can be read is read correctly, the rest is refused in one line."""

import hashlib
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from retinabench.core.errors import InputError
from retinabench.data.datasets import synthetic
from retinabench.data.preprocessing import preprocess
from retinabench.data.preprocessing.graham import field_box
from retinabench.data.preprocessing.preprocess import Original, Recipe, decode, describe_original, preprocess_bytes


@pytest.fixture
def photograph():
    rows, columns = np.mgrid[:120, :160]
    return Image.fromarray(np.stack([columns + 40, rows + 60, 30 + (rows + columns) // 4], axis=2).astype(np.uint8))


def encoded(image, kind="PNG", **options):
    sink = io.BytesIO()
    image.save(sink, kind, **options)
    return sink.getvalue()


def distance(one, two):
    return np.abs(np.asarray(one, float) - np.asarray(two, float)).mean()


@pytest.mark.parametrize(
    ("kind", "tolerance"), [("PNG", 0), ("TIFF", 0), ("BMP", 0), ("PPM", 0), ("JPEG", 2), ("WEBP", 4), ("GIF", 12)]
)
def test_the_content_decides_not_the_name(photograph, kind, tolerance):
    assert distance(decode(encoded(photograph, kind), "wrong.xyz"), photograph) <= tolerance


def test_greyscale_and_palette_and_cmyk(photograph):
    grey = photograph.convert("L")
    assert distance(decode(encoded(grey), "x"), grey.convert("RGB")) == 0
    assert distance(decode(encoded(grey, "JPEG"), "x"), grey.convert("RGB")) < 2
    palette = photograph.quantize(64)
    assert distance(decode(encoded(palette), "x"), palette.convert("RGB")) == 0
    for kind in ("TIFF", "JPEG"):
        assert distance(decode(encoded(photograph.convert("CMYK"), kind), "x"), photograph) < 3


def sixteen_bit_png(levels):
    """A PNG (H, W, 3) of 16 bits a channel, which Pillow does not write."""
    height, width = levels.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in levels)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )


def test_sixteen_bits_are_scaled_not_clipped():
    levels = np.linspace(0, 65535, 256 * 4).astype(np.uint16).reshape(16, 64)
    for kind in ("PNG", "TIFF"):
        got = np.asarray(decode(encoded(Image.fromarray(levels), kind), "x"))
        assert np.array_equal(got, np.repeat(np.rint(levels / 257).astype(np.uint8)[..., None], 3, axis=2))
    colour = np.stack([levels, levels[::-1], levels // 2], axis=2)
    got = np.asarray(decode(sixteen_bit_png(colour), "x"), int)
    assert np.abs(got - colour / 257).max() <= 1  # Pillow takes the upper byte


def test_what_is_transparent_is_black(photograph):
    hidden = np.dstack([np.full((120, 160, 3), 255, np.uint8), np.zeros((120, 160), np.uint8)])
    hidden[:, 80:, :3], hidden[:, 80:, 3] = (90, 60, 30), 255
    got = np.asarray(decode(encoded(Image.fromarray(hidden)), "x"))
    assert (got[:, :80] == 0).all()
    assert (got[:, 80:] == (90, 60, 30)).all()
    palette = photograph.quantize(16)
    got = np.asarray(decode(encoded(palette, transparency=0), "x"))
    assert (got[np.asarray(palette) == 0] == 0).all()
    grey = Image.merge("LA", [photograph.getchannel(0), Image.new("L", photograph.size, 0)])
    assert np.asarray(decode(encoded(grey), "x")).max() == 0


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_cameras_orientation_is_applied(photograph, orientation):
    turned = {
        1: None, 2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_270,
    }[orientation]  # fmt: skip
    stored = photograph if turned is None else photograph.transpose(turned)
    exif = Image.Exif()
    exif[0x0112] = orientation
    got = decode(encoded(stored, "JPEG", quality=95, exif=exif), "x")
    assert got.size == photograph.size
    assert distance(got, photograph) < 2


def refused(data, problem):
    with pytest.raises(InputError, match=problem) as caught:
        decode(data, "photo.jpg", 64)
    assert "photo.jpg" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_broken_files_are_refused(photograph):
    large = photograph.resize((900, 700))
    refused(b"", "empty")
    refused(b"not an image\n" * 50, "not an image")
    refused(b"\xff\xd8", "not an image|broken")
    refused(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image")
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "TIFF"):
        whole = encoded(large, kind)
        refused(whole[: len(whole) // 2], "broken|not an image")
    refused(encoded(Image.fromarray(np.ones((9, 9), np.float32)), "TIFF"), "floating-point")


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_bomb_is_refused_before_its_memory_is_asked_for(kind, photograph, monkeypatch):
    if kind == "PNG":
        data = sixteen_bit_png(np.zeros((2, 2, 3), np.uint16))
        header = struct.pack(">IIBBBBB", 60000, 60000, 8, 2, 0, 0, 0)
        data = data[:16] + header + struct.pack(">I", zlib.crc32(b"IHDR" + header)) + data[33:]
    else:
        data = bytearray(encoded(photograph, "JPEG"))
        frame = data.index(b"\xff\xc0")
        data[frame + 5 : frame + 9] = struct.pack(">HH", 60000, 60000)
    monkeypatch.setattr(Image.Image, "load", lambda self: pytest.fail("pixels were asked for"))
    refused(bytes(data), "more than 100 megapixels")
    assert preprocess.dimensions(bytes(data)) in {(60000, 60000), (0, 0)}


def test_flipped_bytes_give_a_picture_or_one_line(photograph):
    """2,000 files with random damage: nothing but `InputError` ever leaves the decoder."""
    random = np.random.default_rng(5)
    whole = [np.frombuffer(encoded(photograph, kind), np.uint8) for kind in ("JPEG", "PNG", "GIF", "WEBP", "TIFF")]
    outcomes = {True: 0, False: 0}
    for number in range(2000):
        data = whole[number % len(whole)].copy()
        places = random.integers(0, min(len(data), 600), random.integers(1, 6))
        data[places] = random.integers(0, 256, len(places), dtype=np.uint8)
        try:
            outcomes[decode(data.tobytes(), "x", 64).mode == "RGB"] += 1
        except InputError:
            outcomes[False] += 1
    assert min(outcomes.values()) > 100


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
    crop, none, graham = (synthetic.read(source, None, Recipe(64, kind)) for kind in ("crop", "none", "graham"))
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
    square = Image.fromarray(full).crop((*box, box[0] + side, box[1] + side)).resize((64, 64), Image.Resampling.BOX)
    # The JPEG decoder's own downscaling is not a box filter, and its box may end a pixel away.
    assert np.abs(small - np.asarray(square)).mean() < 3
