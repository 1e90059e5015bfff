"""From the bytes of a file to a square image of the retina: decode, preprocess, resize.

| `--preprocess` | gives |
|---|---|
| `crop` (default) | the field of view fills the square, as in 2019 |
| `graham` | minus its local average: 4 image - 4 blur + 128, sigma = radius / `--blur`, grey outside 90 % of the field of view |
| `graham --published` | exactly the released code's pixels, faults included; several times slower |
| `none` | the whole image, padded with black |

The format is found by content, not by extension. Greyscale, palette, CMYK and 16-bit images become RGB (16 bits are scaled, not
clipped), transparency becomes black, the camera's orientation is applied. Bytes after an image's end are ignored;
an incomplete image is refused, and so is one of more than 100 megapixels, before memory is allocated for it.
"""

from __future__ import annotations

import hashlib
import io
import warnings
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from retinabench.core.errors import InputError, nearest
from retinabench.data.preprocessing.corruption import Corruption, corrupt
from retinabench.data.preprocessing.graham import field_circle, graham, graham_published, square_image, working_side

MAX_PIXELS = 100_000_000  # the largest fundus cameras stay below 50 megapixels
Image.MAX_IMAGE_PIXELS = MAX_PIXELS

# Formats of stored images; others of Pillow start external programs (EPS).
FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "GIF", "WEBP", "PPM", "JPEG2000")
HINT = "Replace or remove it."


def dimensions(data: bytes) -> tuple[int, int]:
    """Return width and height as stored, from the header alone; (0, 0) where there is none."""
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data), formats=FORMATS) as opened:
            return opened.size
    except Exception:  # see `decode`
        return 0, 0


def decode(data: bytes, name: str, at_least: int | None = None) -> Image.Image:
    if not data:
        raise InputError("is empty (0 bytes)", file=name, hint=HINT)
    try:
        # Warnings of Pillow (odd metadata, a size near the limit) do not matter to the user.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
                width, height = opened.size
                if width * height > MAX_PIXELS:
                    raise Image.DecompressionBombError(f"{width} x {height}")
                if at_least is not None:
                    opened.draft("RGB", (at_least, at_least))
                opened.load()
                ImageOps.exif_transpose(opened, in_place=True)
                return _rgb(opened)
    except UnidentifiedImageError:
        raise InputError("is not an image that can be read", file=name, hint=HINT) from None
    except Image.DecompressionBombError:
        raise InputError(f"claims more than {MAX_PIXELS // 1_000_000} megapixels", file=name, hint=HINT) from None
    except MemoryError:
        raise
    except (
        Exception
    ) as error:  # on malformed bytes the decoders raise many kinds of errors: struct.error, IndexError, …
        problem = f"{type(error).__name__}: {error}" if not isinstance(error, OSError) else str(error)
        raise InputError(f"is a broken image ({problem})", file=name, hint=HINT) from None


def _rgb(opened: Image.Image) -> Image.Image:
    if opened.mode.startswith("I"):  # Pillow's own conversion would clip at 255
        levels = np.asarray(opened).clip(0, 65535).astype(np.float32)
        return Image.fromarray(np.rint(levels / 257).astype(np.uint8)).convert("RGB")
    if opened.mode == "F":
        raise ValueError("floating-point pixels")
    if opened.has_transparency_data:
        black = Image.new("RGBA", opened.size, (0, 0, 0, 255))
        return Image.alpha_composite(black, opened.convert("RGBA")).convert("RGB")
    return opened if opened.mode == "RGB" else opened.convert("RGB")  # which would copy


Preprocess = Literal["crop", "graham", "none"]
BLURS = (3, 5, 10, 20, 30)  # of the Retina Benchmark; its paper tells of 5 and more


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the pixels of a prepared image."""

    size: int
    preprocess: Preprocess = "crop"
    blur: int = 30
    published: bool = False
    corrupt: Corruption | None = None

    def __post_init__(self) -> None:
        if not 16 <= self.size <= 2048:
            raise InputError(f"size {self.size} is outside 16 … 2048 pixels", hint="Choose another --size.")
        if self.preprocess not in get_args(Preprocess):
            hint = nearest(self.preprocess, get_args(Preprocess))
            raise InputError(f"unknown preprocessing '{self.preprocess}'", hint=hint)
        if self.blur not in BLURS:
            raise InputError(f"blur {self.blur} is not one of {', '.join(map(str, BLURS))}")
        if self.preprocess != "graham" and (self.published or self.blur != 30):
            raise InputError("blur and published belong to Graham's preprocessing", hint="Add --preprocess graham.")


def preprocess_bytes(data: bytes, recipe: Recipe, name: str, image_id: str = "") -> NDArray[np.uint8]:
    """Decode and preprocess the bytes of a file; JPEG files are decoded at a reduced scale if that is enough."""
    if recipe.published:
        rgb = corrupt(np.asarray(decode(data, name)), recipe.corrupt, image_id)
        return graham_published(rgb, recipe.size, recipe.blur)
    if recipe.preprocess == "graham":
        return _graham(data, recipe, name, image_id)
    at_least = 2 * recipe.size if recipe.preprocess == "crop" else recipe.size
    return corrupt(preprocess(decode(data, name, at_least), recipe), recipe.corrupt, image_id)


def preprocess(rgb: Image.Image, recipe: Recipe) -> NDArray[np.uint8]:
    """Preprocess a decoded or drawn image, without damage; return (size, size, 3)."""
    size = recipe.size
    if recipe.published:
        return graham_published(np.asarray(rgb), size, recipe.blur)
    if recipe.preprocess == "graham":
        return np.asarray(graham(rgb, field_circle(rgb), size, recipe.blur))
    if recipe.preprocess == "none":
        return np.asarray(ImageOps.pad(rgb, (size, size), Image.Resampling.BILINEAR, color=(0, 0, 0)))
    return square_image(rgb, size)


def _graham(data: bytes, recipe: Recipe, name: str, image_id: str) -> NDArray[np.uint8]:
    needed = working_side(recipe.size)
    rgb = decode(data, name, needed)
    circle = field_circle(rgb)
    # A small field of view in a large frame: decode finer, where the image has more to give.
    if 2 * circle.radius < needed and max(rgb.size) < max(dimensions(data)):
        rgb = decode(data, name, round(min(rgb.size) * needed / (2 * circle.radius)))
        circle = field_circle(rgb)
    if recipe.corrupt is not None:
        rgb = Image.fromarray(corrupt(np.asarray(rgb), recipe.corrupt, image_id))
    return np.asarray(graham(rgb, circle, recipe.size, recipe.blur))


@dataclass(frozen=True)
class Original:
    """The file that an image is made from: SHA-256 and number of its bytes, width and height (0 if unreadable)."""

    sha256: str = ""
    bytes: int = 0
    width: int = 0
    height: int = 0


def describe_original(data: bytes) -> Original:
    """Return hash, length and size of an image file, from its bytes."""
    return Original(hashlib.sha256(data).hexdigest(), len(data), *dimensions(data))
