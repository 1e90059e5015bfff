"""Fundus images before and after preprocessing (paper: Figures 6 and 7, and 18 by blur constant)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.data.preprocessing.preprocess import Recipe, preprocess_bytes
from retinabench.reports.papers.figures.parts import PaperFigure
from retinabench.reports.toolkit.figures import canvas

ENDINGS = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".webp", ".ppm", ".jp2", ".gif")
SHOWN = 4
SIDE = 320  # pixels of an image in a figure
BLURS = (5, 10, 20, 30)  # of section B.6


def figures(folder: Path, rules: str) -> list[PaperFigure]:
    """Return the figures of some images of a folder, evenly spaced in the order of their names."""
    if not folder.is_dir():
        raise InputError("is not a folder", file=folder, hint="Name a folder of fundus images.")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    if not found:
        hint = f"Recognised endings: {', '.join(ENDINGS)}."
        raise InputError("holds no images", file=folder, hint=hint)
    chosen = [found[k] for k in np.unique(np.linspace(0, len(found) - 1, SHOWN).round().astype(int))]
    how = "exactly as released" if rules == "published" else "by the corrected form of Graham's preprocessing"
    blur = "A smaller blur constant averages over a larger surround and keeps more signal and more noise."
    return [
        PaperFigure("figure-06-preprocessing", "6 and 7", "Images before and after preprocessing",
                    f"Above: original images. Below: the same {how}, blur 30.", partial(_before_and_after, chosen, rules)),
        PaperFigure("figure-18-blur-examples", "18", "Preprocessing by blur constant", f"Images {how}. {blur}",
                    partial(_by_blur, chosen, rules)),
    ]  # fmt: skip


def _read(path: Path, blur: int | None, rules: str) -> NDArray[np.uint8]:
    """Return an image (SIDE, SIDE, 3), as it is or preprocessed with a blur constant."""
    if blur is None:
        return preprocess_bytes(path.read_bytes(), Recipe(SIDE, "none"), str(path))
    return preprocess_bytes(path.read_bytes(), Recipe(SIDE, "graham", blur, rules == "published"), str(path))


def _before_and_after(paths: Sequence[Path], rules: str) -> Figure:
    rows = [[_read(path, blur, rules) for path in paths] for blur in (None, 30)]
    return _sheet(rows, ["original", "blur 30"], by_row=True)


def _by_blur(paths: Sequence[Path], rules: str) -> Figure:
    recipes = (None, *BLURS)
    rows = [[_read(path, blur, rules) for blur in recipes] for path in paths]
    return _sheet(rows, ["original", *(f"blur {blur}" for blur in BLURS)], by_row=False)


def _sheet(rows: Sequence[Sequence[NDArray[np.uint8]]], names: Sequence[str], *, by_row: bool) -> Figure:
    """Draw images in a grid with the names of the rows or of the columns."""
    figure, grid = canvas(104 * len(rows[0]) + 20, 104 * len(rows) + 20, len(rows), len(rows[0]), text=11)
    for row, (line, images) in enumerate(zip(grid, rows, strict=True)):
        for column, (axes, shown) in enumerate(zip(line, images, strict=True)):
            axes.imshow(shown, interpolation="lanczos")
            axes.set(xticks=[], yticks=[])
            for spine in axes.spines.values():
                spine.set_visible(False)
            if by_row and column == 0:
                axes.set_ylabel(names[row], fontsize=9)
            if not by_row and row == 0:
                axes.set_title(names[column], fontsize=9)
    return figure
