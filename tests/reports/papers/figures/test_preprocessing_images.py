"""Examples of preprocessing are drawn from a folder of images."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from retinabench.core.errors import InputError
from retinabench.reports.papers.figures import preprocessing_images
from support.fake_predictions import population

PEOPLE = population(240, 160)


def test_preprocessing_is_shown_for_a_folder_of_images(tmp_path):
    y, x = np.mgrid[:120, :160]
    disc = np.where(np.hypot(y - 60, x - 80)[..., None] < 55, [200, 90, 40], [0, 0, 0]).astype(np.uint8)
    (tmp_path / "deep").mkdir()
    for k in range(6):
        Image.fromarray(disc).save(tmp_path / "deep" / f"{k}.png")
    for rules in ("corrected", "published"):
        found = preprocessing_images.figures(tmp_path, rules)
        assert [one.number for one in found] == ["6 and 7", "18"]
    assert len(found[0].draw().axes) == 8
    assert len(found[1].draw().axes) == 20
    with pytest.raises(InputError, match="not a folder"):
        preprocessing_images.figures(tmp_path / "none", "corrected")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no images"):
        preprocessing_images.figures(tmp_path / "empty", "corrected")


def test_a_broken_image_is_one_line(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"not an image")
    with pytest.raises(InputError, match=r"a\.jpg: is not an image"):
        preprocessing_images.figures(tmp_path, "corrected")[0].draw()
