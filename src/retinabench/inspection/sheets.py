"""Contact sheets: labelled images on one sheet, as PNG."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from retinabench.core.random_streams import numpy_generator

COLUMNS, ROWS = 6, 4
SIDE, LINE, GAP = 160, 15, 10
PAPER, INK, MUTED, BAD = "#fffffe", "#1d1d1b", "#6a6a66", "#c8452d"


@dataclass(frozen=True, eq=False)
class Tile:
    """A labelled image.

    Attributes:
        image: Pixels, (S, S, 3).
        name: First line of the label.
        text: Second line of the label.
        bad: Whether the second line is red.
    """

    image: NDArray[np.uint8]
    name: str
    text: str = ""
    bad: bool = False


def chosen_of_class(of_row: NDArray[np.int8], number: int, seed: int) -> NDArray[np.intp]:
    """Choose images of a class at random.

    Shapes: `of_row` (N,).
    """
    rows = np.flatnonzero(of_row == number)
    draw = numpy_generator(seed, "inspect", number)
    return np.sort(draw.permutation(rows)[: COLUMNS * ROWS])


def contact_sheet(title: str, tiles: Sequence[Tile]) -> bytes:
    """Return a contact sheet of `tiles`, six to a row, as the bytes of a PNG."""
    rows = -(-len(tiles) // COLUMNS)
    height = SIDE + 2 * LINE + GAP
    page = Image.new("RGB", (COLUMNS * (SIDE + GAP) + GAP, 40 + rows * height), PAPER)
    draw = ImageDraw.Draw(page)
    draw.text((GAP, 10), title, INK, _font(16))
    font = _font(10)
    for k, tile in enumerate(tiles):
        x, y = GAP + k % COLUMNS * (SIDE + GAP), 40 + k // COLUMNS * height
        page.paste(thumbnail(tile.image, SIDE).resize((SIDE, SIDE), Image.Resampling.BILINEAR), (x, y))
        draw.text((x, y + SIDE + 2), _fitting(tile.name, font), INK, font)
        draw.text((x, y + SIDE + 2 + LINE), _fitting(tile.text, font), BAD if tile.bad else MUTED, font)
    with io.BytesIO() as out:
        page.save(out, "PNG")
        return out.getvalue()


def thumbnail(image: NDArray[np.uint8], side: int) -> Image.Image:
    """Return an image (S, S, 3) at most `side` pixels wide."""
    small = Image.fromarray(np.ascontiguousarray(image))
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return small


def data_uri(image: NDArray[np.uint8]) -> str:
    """Return an image (S, S, 3) as a JPEG data URI, for a page that stands alone."""
    with io.BytesIO() as out:
        thumbnail(image, 2 * SIDE).save(out, "JPEG", quality=80)
        return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"


def _font(size: int) -> ImageFont.FreeTypeFont:
    """Return DejaVu Sans, as Pillow's own font lacks the minus sign and accented letters."""
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)


def _fitting(text: str, font: ImageFont.FreeTypeFont) -> str:
    """Cut `text` in its middle until it fits below an image: ids often differ at their ends."""
    if font.getlength(text) <= SIDE:
        return text
    keep = len(text) - 1
    while keep > 2 and font.getlength(_cut(text, keep)) > SIDE:
        keep -= 1
    return _cut(text, keep)


def _cut(text: str, keep: int) -> str:
    return f"{text[: keep - keep // 2]}…{text[len(text) - keep // 2 :]}"
