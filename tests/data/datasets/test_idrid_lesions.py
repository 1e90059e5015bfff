import csv

import numpy as np
import pytest
from PIL import Image

from retinabench.concepts.banks import masks as lesion_images
from retinabench.core.errors import InputError
from retinabench.data.datasets import idrid_lesions


def test_the_143_images_of_the_published_experiment(shared):
    source = shared("data", "idrid_lesions")
    images = idrid_lesions.read(source)
    assert len(images) == 143
    assert dict(zip(images.concepts, images.truth.sum(axis=0), strict=True)) == {
        "microaneurysm": 54, "haemorrhage": 53, "hard_exudate": 54, "soft_exudate": 26,
    }  # fmt: skip
    trained, questioned = lesion_images.split(images, 0, 0.3)
    assert (len(trained), len(questioned)) == (100, 43)


def test_masks_cover_the_area_that_the_table_states(shared):
    source = shared("data", "idrid_lesions")
    images = idrid_lesions.read(source)
    with open(source / "concepts.csv", newline="") as handle:
        rows = list(csv.DictReader(handle))
    for row in (0, 2, 53, 100):
        masks = images.masks(row)
        stated = [float(rows[row][f"area_{kind}"]) for kind in idrid_lesions.KINDS]
        # The table counts the whole 512 x 512 square; the square around the retina may be a pixel or two smaller.
        assert masks.sum(axis=(1, 2)) / 512**2 == pytest.approx(stated, abs=1e-4)


@pytest.fixture
def compact(tmp_path):
    """Two images, a disc with one lesion, and one without."""
    (tmp_path / "images").mkdir()
    y, x = np.mgrid[-1:1:60j, -1:1:100j]
    disc = (np.hypot(x, 0.6 * y) < 0.9)[..., None] * np.array([180, 90, 40])
    lesion = np.zeros_like(disc)
    lesion[10:16, 20:26] = 250
    for name, pixels in (("A", np.maximum(disc, lesion)), ("A_EX", lesion), ("B", disc)):
        Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "images" / f"{name}.jpg", quality=95)
    (tmp_path / "concepts.csv").write_text("file,dr,MA,HE,EX,SE\nA.jpg,1,0,0,1,0\nB.jpg,0,0,0,0,0\n")
    return tmp_path


def test_picture_and_mask_are_cut_alike(compact):
    images = idrid_lesions.read(compact)
    assert images.truth.tolist() == [[False, False, True, False], [False] * 4]
    mask = images.masks(0)[2]
    side = len(mask)
    bright = images.image(0, side).min(axis=2) > 150
    assert mask.sum() == pytest.approx(36, abs=14)  # JPEG blurs the edge of a 6 x 6 lesion by a pixel
    assert (bright & ~mask).sum() <= 2
    assert not images.masks(1).any()
    assert images.image(1, 20).shape == (20, 20, 3)


def test_mistakes_are_named(compact):
    table = compact / "concepts.csv"
    good = table.read_text()
    for content, says in (
        (good.replace("A.jpg,1,0,0,1", "A.jpg,1,0,0,yes"), r"row 1, column 'EX': is 'yes'"),
        (good.replace("B.jpg,0,0", "B.jpg,0,1"), r"row 2, column 'MA': its mask .*B_MA.jpg is missing"),
        (good.replace("B.jpg", "C.jpg"), r"row 2: its image .*C.jpg is missing"),
        ("file,MA,HE,EX\n", "column 'SE': is missing"),
        ("file,MA,HE,EX,SE\n", "holds no rows"),
    ):
        table.write_text(content)
        with pytest.raises(InputError, match=says):
            idrid_lesions.read(compact)
    table.write_text(good)
    images = idrid_lesions.read(compact)
    Image.new("RGB", (100, 60)).save(compact / "images" / "A_EX.jpg")
    with pytest.raises(InputError, match=r"A_EX.jpg: shows no lesion"):
        images.masks(0)
    half = (compact / "images" / "A.jpg").read_bytes()[:700]
    for content, says in ((b"no image", "is not an image"), (half, "is a broken image")):
        (compact / "images" / "B.jpg").write_bytes(content)
        with pytest.raises(InputError, match=f"B.jpg: {says}"):
            images.image(1, 32)
    (compact / "images" / "B.jpg").unlink()
    with pytest.raises(InputError, match=r"B.jpg: does not exist"):
        images.image(1, 32)
    with pytest.raises(InputError, match="is not a folder"):
        idrid_lesions.read(compact / "nowhere")
    with pytest.raises(InputError, match="All Segmentation Groundtruths"):
        idrid_lesions.read(compact / "images")


def test_the_official_archives_are_read_as_downloaded(tmp_path, write_grading):
    lesioned = tmp_path / "A. Segmentation"
    truths = lesioned / "2. All Segmentation Groundtruths"
    for part, number, kinds in (("a. Training Set", 1, ("MA", "EX")), ("b. Testing Set", 55, ("MA",))):
        photographs = lesioned / "1. Original Images" / part
        photographs.mkdir(parents=True)
        Image.new("RGB", (40, 30), (150, 80, 30)).save(photographs / f"IDRiD_{number:02d}.jpg")
        for kind in kinds:
            folder = truths / part / idrid_lesions.KINDS[kind][1]
            folder.mkdir(parents=True)
            mask = Image.new("RGB", (40, 30))
            mask.paste((255, 0, 0), (5, 6, 9, 10))
            mask.save(folder / f"IDRiD_{number:02d}_{kind}.tif")
    # 3 is image 2 once more, with another grade: its truth is in doubt
    write_grading((1, 0, 10), (2, 0, 20), (3, 2, 20))
    images = idrid_lesions.read(tmp_path)
    assert list(images.sample_id) == ["IDRiD_01", "IDRiD_55", "IDRiD_001_train_grade_0", "IDRiD_001_test_grade_0"]
    assert images.truth.tolist() == [[True, False, True, False], [True] + [False] * 3, [False] * 4, [False] * 4]
    assert images.masks(0).sum(axis=(1, 2)).tolist() == [16, 0, 16, 0]
    assert images.image(2, 16).shape == (16, 16, 3)
