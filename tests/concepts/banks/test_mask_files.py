"""Mask files in the layout of ISIC 2018, task 2."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from retinabench.concepts.banks.definition import find_definition
from retinabench.concepts.banks.mask_files import read_mask_files
from retinabench.core.errors import InputError
from retinabench.data.ingest.archives import Files
from support.bank_files import mask, opened, picture, refused


@pytest.fixture
def isic(tmp_path):
    attributes = find_definition("isic2018").concepts
    for k in range(3):
        picture(tmp_path / f"ISIC2018_Task1-2_Training_Input/ISIC_000000{k}.jpg")
        for j, attribute in enumerate(attributes):
            box = (12, 0, 16, 4) if j == k else None
            mask(
                tmp_path / f"ISIC2018_Task2_Training_GroundTruth_v3/ISIC_000000{k}_attribute_{attribute}.png",
                box,
            )
    return tmp_path


def test_isic_has_five_masks_per_image(isic):
    images = opened("isic2018", isic)
    assert images.concepts == (
        "pigment_network",
        "negative_network",
        "streaks",
        "milia_like_cyst",
        "globules",
    )
    assert images.truth.tolist() == np.eye(3, 5, dtype=int).tolist()
    assert images.sample_id[0] == "ISIC_0000000"
    masks = images.masks(0)
    assert masks.shape == (5, 24, 24)  # padded to a square: 4 black rows above
    assert np.argwhere(masks[0]).min(axis=0).tolist() == [4, 12]
    assert masks.sum() == 16
    assert images.image(0, 12).shape == (12, 12, 3)
    assert not images.image(0, 24)[0].any()


def test_wrong_masks_are_named(isic):
    truths = isic / "ISIC2018_Task2_Training_GroundTruth_v3"
    mask(truths / "ISIC_0000001_attribute_streaks.png", size=(10, 10))
    with pytest.raises(InputError, match=r"streaks.png: is a mask of 10 x 10 pixels for an image of 24 x 16"):
        opened("isic2018", isic).masks(1)
    (truths / "ISIC_0000001_attribute_streaks.png").write_bytes(b"no image")
    assert "streaks.png: is not an image" in refused("isic2018", isic)
    (truths / "ISIC_0000001_attribute_streaks.png").unlink()
    assert "ISIC_0000001_attribute_streaks.png' is missing" in refused("isic2018", isic)
    assert "holds no images" in refused("isic2018", truths)


@pytest.mark.slow
def test_isic_has_2594_images_and_12970_masks(tmp_path):
    definition = find_definition("isic2018")
    mask(tmp_path / "black.png")
    mask(tmp_path / "white.png", (0, 0, 3, 3))
    masks = [
        f"ISIC2018_Task2_Training_GroundTruth_v3/ISIC_{k:07}_attribute_{attribute}.png"
        for k in range(2594)
        for attribute in definition.concepts
    ]

    class Published(Files):
        """Of the masks, every tenth one of streaks is not empty."""

        def read(self, name):
            return drawn(name.endswith("0_attribute_streaks.png"))

    @cache
    def drawn(white):
        return (tmp_path / ("white.png" if white else "black.png")).read_bytes()

    images = [f"ISIC2018_Task1-2_Training_Input/ISIC_{k:07}.jpg" for k in range(2594)]
    found = read_mask_files(definition, definition.masks, Published(tmp_path, loose={*images, *masks}))
    assert len(masks) == 12_970
    assert found.truth.shape == (2594, 5)
    assert found.truth.sum(axis=0).tolist() == [0, 0, 260, 0, 0]
