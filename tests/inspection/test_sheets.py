"""Contact sheets."""

import numpy as np
from PIL import ImageDraw

from retinabench.inspection.sheets import Tile, contact_sheet


def test_signs_and_accents_are_drawn_and_not_as_boxes(monkeypatch):
    drawn = []
    original = ImageDraw.ImageDraw.text
    monkeypatch.setattr(
        ImageDraw.ImageDraw, "text", lambda self, *a: drawn.append((a[1], a[3])) or original(self, *a)
    )
    contact_sheet(
        "Outliers",
        [Tile(np.zeros((8, 8, 3), np.uint8), "André Ünal 1×2 " * 6, "few bytes per pixel, z −4.5")],
    )
    assert drawn[-1][0] == "few bytes per pixel, z −4.5"  # whole, not cut
    for text, font in drawn:
        assert not [sign for sign in text if bytes(font.getmask(sign)) == bytes(font.getmask("\uffff"))]
