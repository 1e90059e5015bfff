import tracemalloc

import numpy as np
import pytest

from retinabench.concepts.banks import lesion_images, regions
from retinabench.concepts.questioning.loop import examine
from retinabench.data.lesion_images import LesionImages


def images_of(masks: np.ndarray) -> LesionImages:
    """Images (N) with the given masks (N, C, H, W), black pictures."""
    n, concepts = masks.shape[:2]
    names = np.array([f"i{k}" for k in range(n)])
    return LesionImages(
        sample_id=names,
        concepts=tuple("abc"[:concepts]),
        truth=masks.any(axis=(2, 3)),
        patient_id=names,
        image=lambda row, size: np.full((size, size, 3), row, np.uint8),
        masks=lambda row: masks[row],
    )


@pytest.mark.parametrize("grid", [1, 2, 3, 5])
def test_a_region_has_what_a_pixel_of_its_masks_has(grid):
    masks = np.random.default_rng(grid).random((3, 30, 45)) < 0.01
    found = regions.region_truth(masks, grid)
    high, wide = 30 // grid, 45 // grid
    for k, (row, column) in enumerate(np.ndindex(grid, grid)):
        block = masks[:, row * high : (row + 1) * high, column * wide : (column + 1) * wide]
        assert found[k].tolist() == block.any(axis=(1, 2)).tolist()


def test_pictures_and_names_follow_the_same_order():
    picture = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3)
    cut = regions.region_images(picture, 2)
    assert np.array_equal(cut[1], picture[:2, 2:])
    assert np.array_equal(cut[2], picture[2:, :2])
    assert regions.region_ids("x", 2) == ["x/r1c1", "x/r1c2", "x/r2c1", "x/r2c2"]


def test_the_regions_of_drawn_pictures_add_up_to_them():
    images = lesion_images.drawn(20, seed=5, population="shifted", mask_size=64)
    found = lesion_images.gather(images, np.arange(20), size=32, grid=4)
    assert found.images.shape == (320, 32, 32, 3)
    assert np.array_equal(found.truth.reshape(20, 16, 5).any(axis=1), images.truth)
    assert 0 < found.truth.mean() < images.truth.mean()  # a region has less than its image
    lit = found.images.reshape(20, 4, 4, -1).mean(axis=-1)
    assert (
        lit[:, 1:3, 1:3].mean(axis=(1, 2)) > lit[:, 0, 0]
    ).all()  # the middle of the disc, not its dark corner


def test_a_bank_of_regions_is_mapped_and_can_be_examined(tmp_path):
    masks = np.random.default_rng(0).random((40, 2, 12, 12)) < 0.02
    images = images_of(masks)
    bank = lesion_images.region_bank(images, 3, tmp_path / "truth.npy")
    assert isinstance(bank.truth, np.memmap)
    expected = np.concatenate([regions.region_truth(one, 3) for one in masks])
    assert np.array_equal(bank.truth, expected)
    found = examine(bank, lambda sample, concept: float(expected[sample, "ab".index(concept)]))
    counts = [one["counts"] for one in found.to_dict()["concepts"].values()]
    assert [c["tp"] for c in counts] == expected.sum(axis=0).tolist()
    assert sum(c["fp"] + c["fn"] for c in counts) == 0


def test_a_million_regions_need_the_memory_of_one_image(tmp_path):
    one = np.random.default_rng(0).random((3, 64, 64)) < 0.01
    images = images_of(np.broadcast_to(one, (1000, *one.shape)))
    tracemalloc.start()
    bank = lesion_images.region_bank(images, 32, tmp_path / "truth.npy")
    found = examine(bank, lambda sample, concept: 0.1, questions=30)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert bank.samples == 1_024_000
    assert found.to_dict()["asked"] == 30
    # The truth alone takes 3 MB on disk; counting reads 4,096 rows at once.
    assert peak < 1_500_000
