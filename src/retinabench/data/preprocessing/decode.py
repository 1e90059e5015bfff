"""Decode untrusted image files: from bytes to 8-bit RGB, or one line that says what is wrong.

The format is found by content, not by extension. Greyscale, palette, CMYK and 16-bit images become RGB (16 bits are scaled, not
clipped), transparency becomes black, the camera's orientation is applied. Bytes after an image's end are ignored;
an incomplete image is refused, and so is one of more than 100 megapixels, before memory is allocated for it.
"""

from __future__ import annotations

import io
import warnings

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from retinabench.core.errors import InputError

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
    """Decode the bytes of a file to an RGB image."""
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
        raise InputError(
            f"claims more than {MAX_PIXELS // 1_000_000} megapixels", file=name, hint=HINT
        ) from None
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
