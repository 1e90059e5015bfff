"""COCO files: run lengths, polygons and boxes; wrong files are one line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from retinabench.concepts.banks.coco import run_lengths, uncompressed
from retinabench.core.errors import InputError
from support.bank_files import opened, picture, refused


def compressed(counts):
    """COCO's text of run lengths, written from its description: five bits a group, differences from the fourth on."""
    text = ""
    for k, count in enumerate(counts):
        value = count - (counts[k - 2] if k > 2 else 0)
        more = True
        while more:
            group, value = value & 0x1F, value >> 5
            more = value != (-1 if group & 0x10 else 0)
            text += chr(48 + group + (0x20 if more else 0))
    return text


def test_compressed_runs_are_the_plain_ones():
    random = np.random.default_rng(0)
    for _ in range(50):
        counts = random.integers(0, 3000, random.integers(1, 12)).tolist()
        assert uncompressed(compressed(counts)) == counts


def test_a_mask_of_pycocotools():
    # maskUtils.encode of a 5 x 4 mask (height 5) with the 2 x 2 block at rows 1-2, columns 1-2.
    expected = np.zeros((5, 4), bool)
    expected[1:3, 1:3] = True
    assert np.array_equal(run_lengths([6, 2, 3, 2, 7], 5, 4), expected)
    assert uncompressed("62304") == [6, 2, 3, 2, 7]


def test_runs_that_do_not_fill_the_image_are_refused():
    with pytest.raises(ValueError, match="runs of 19 pixels for 20"):
        run_lengths([6, 2, 3, 2, 6], 5, 4)


COCO = {
    "images": [{"id": 7, "file_name": "a.png"}, {"id": 9, "file_name": "b.png"}],
    "categories": [{"id": 1, "name": "spot"}, {"id": 3, "name": "line"}],
    "annotations": [
        {
            "id": 1,
            "image_id": 7,
            "category_id": 1,
            "segmentation": [[2, 2, 5, 2, 5, 5, 2, 5]],
            "bbox": [2, 2, 4, 4],
        },
        {
            "id": 2,
            "image_id": 9,
            "category_id": 3,
            "segmentation": {"size": [16, 24], "counts": [18, 4, 362]},
        },
        {"id": 3, "image_id": 9, "category_id": 1, "bbox": [10, 4, 3, 2]},
    ],
}


def coco(folder, content):
    (folder / "annotations").mkdir(exist_ok=True)
    (folder / "annotations/instances.json").write_text(json.dumps(content))
    for name in "ab":
        picture(folder / f"images/{name}.png")
    return folder


def test_coco_polygons_runs_and_boxes_become_masks(tmp_path):
    images = opened("coco", coco(tmp_path, COCO))
    assert images.concepts == ("spot", "line")
    assert images.truth.tolist() == [[1, 0], [1, 1]]
    spot = images.masks(0)[0]
    assert spot[4 + 2 : 4 + 6, 2:6].all()  # 4 black rows above the image of 24 x 16
    assert spot.sum() == 16
    box, run = images.masks(1)
    assert np.argwhere(box).tolist() == [[8 + r, 10 + c] for r in range(2) for c in range(3)]
    assert np.argwhere(run).tolist() == [
        [4 + row, 1] for row in range(2, 6)
    ]  # column by column: 16 pixels, then 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": None}, "is no COCO file"),
        ({"annotations": [{"image_id": 8, "category_id": 1}]}, "is no COCO file (KeyError: 8)"),
        (
            {"images": [{"id": 7, "file_name": "gone.png"}], "annotations": []},
            "the image 'images/gone.png' is missing",
        ),
    ],
)
def test_a_wrong_coco_file_is_one_line(tmp_path, change, message):
    assert message in refused("coco", coco(tmp_path, COCO | change))


def test_runs_of_another_size_are_refused(tmp_path):
    wrong = [{"id": 2, "image_id": 9, "category_id": 3, "segmentation": {"size": [10, 10], "counts": [100]}}]
    with pytest.raises(InputError, match="is a mask of 10 x 10 pixels for an image of 24 x 16"):
        opened("coco", coco(tmp_path, COCO | {"annotations": wrong})).masks(1)
