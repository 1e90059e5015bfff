"""Contact sheets: labelled pictures on one page, as PNG."""

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
class Cell:
    """A picture (S, S, 3), its name, and what is said of it; `bad`: said in red."""

    picture: NDArray[np.uint8]
    name: str
    text: str = ""
    bad: bool = False


def chosen_of_class(of_row: NDArray[np.int8], number: int, seed: int) -> NDArray[np.intp]:
    """Return up to 24 rows of a class, `of_row` (N,), drawn at random, in the order of the records."""
    rows = np.flatnonzero(of_row == number)
    draw = numpy_generator(seed, "inspect", number)
    return np.sort(draw.permutation(rows)[: COLUMNS * ROWS])


def sheet(title: str, cells: Sequence[Cell]) -> bytes:
    """Return a contact sheet of `cells`, six to a row, as the bytes of a PNG."""
    rows = -(-len(cells) // COLUMNS)
    height = SIDE + 2 * LINE + GAP
    page = Image.new("RGB", (COLUMNS * (SIDE + GAP) + GAP, 40 + rows * height), PAPER)
    draw = ImageDraw.Draw(page)
    draw.text((GAP, 10), title, INK, _font(16))
    font = _font(10)
    for k, cell in enumerate(cells):
        x, y = GAP + k % COLUMNS * (SIDE + GAP), 40 + k // COLUMNS * height
        page.paste(thumbnail(cell.picture, SIDE).resize((SIDE, SIDE), Image.Resampling.BILINEAR), (x, y))
        draw.text((x, y + SIDE + 2), _fitting(cell.name, font), INK, font)
        draw.text((x, y + SIDE + 2 + LINE), _fitting(cell.text, font), BAD if cell.bad else MUTED, font)
    with io.BytesIO() as out:
        page.save(out, "PNG")
        return out.getvalue()


def thumbnail(picture: NDArray[np.uint8], side: int) -> Image.Image:
    """Return a picture (S, S, 3) at most `side` pixels wide."""
    image = Image.fromarray(np.ascontiguousarray(picture))
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    return image


def data_uri(picture: NDArray[np.uint8]) -> str:
    """Return a picture (S, S, 3) as a JPEG inside an address, for a page that stands alone."""
    with io.BytesIO() as out:
        thumbnail(picture, 2 * SIDE).save(out, "JPEG", quality=80)
        return f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}"


def _font(size: int) -> ImageFont.FreeTypeFont:
    """Pillow's own font has neither a minus sign nor letters with accents; this one also knows Greek and Cyrillic."""
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", size)


def _fitting(text: str, font: ImageFont.FreeTypeFont) -> str:
    """Cut `text` in its middle until it fits below a picture: ids often differ at their ends."""
    if font.getlength(text) <= SIDE:
        return text
    keep = len(text) - 1
    while keep > 2 and font.getlength(_cut(text, keep)) > SIDE:
        keep -= 1
    return _cut(text, keep)


def _cut(text: str, keep: int) -> str:
    return f"{text[: keep - keep // 2]}…{text[len(text) - keep // 2 :]}"
