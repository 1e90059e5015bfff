import numpy as np
import pytest

from retinabench.concepts.banks import lesion_images
from retinabench.concepts.banks.samples import prepare_samples
from retinabench.core.errors import InputError
from retinabench.data.dataset import ConceptImages
from retinabench.data.synthetic.fundus import draw
from retinabench.data.synthetic.truth import LESIONS


def images_of(masks: np.ndarray) -> ConceptImages:
    """Images (N) with the given masks (N, C, H, W), black images."""
    n, concepts = masks.shape[:2]
    names = np.array([f"i{k}" for k in range(n)])
    return ConceptImages(
        sample_id=names,
        concepts=tuple("abc"[:concepts]),
        truth=masks.any(axis=(2, 3)).astype(np.int8),
        patient_id=names,
        image=lambda row, size: np.full((size, size, 3), row, np.uint8),
        masks=lambda row: masks[row],
    )


@pytest.mark.parametrize("grid", [1, 2, 3, 5])
def test_a_region_has_what_a_pixel_of_its_masks_has(grid):
    masks = np.random.default_rng(grid).random((3, 30, 45)) < 0.01
    found = lesion_images.region_truth(masks, grid)
    high, wide = 30 // grid, 45 // grid
    for k, (row, column) in enumerate(np.ndindex(grid, grid)):
        block = masks[:, row * high : (row + 1) * high, column * wide : (column + 1) * wide]
        assert found[k].tolist() == block.any(axis=(1, 2)).tolist()


def test_images_and_names_follow_the_same_order():
    image = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3)
    cut = lesion_images.region_images(image, 2)
    assert np.array_equal(cut[1], image[:2, 2:])
    assert np.array_equal(cut[2], image[2:, :2])
    assert lesion_images.region_ids("x", 2) == ["x/r1c1", "x/r1c2", "x/r2c1", "x/r2c2"]


def test_the_regions_of_drawn_images_add_up_to_them(tmp_path):
    images = lesion_images.drawn(20, seed=5, population="shifted", mask_size=64)
    found = prepare_samples(images, tmp_path, size=32, grid=4, source={})
    pixels = found.images(np.arange(320))
    assert pixels.shape == (320, 32, 32, 3)
    assert np.array_equal(found.truth.reshape(20, 16, 5).any(axis=1), images.truth)
    assert 0 < found.truth.mean() < images.truth.mean()  # a region has less than its image
    lit = pixels.reshape(20, 4, 4, -1).mean(axis=-1)
    assert (
        lit[:, 1:3, 1:3].mean(axis=(1, 2)) > lit[:, 0, 0]
    ).all()  # the middle of the disc, not its dark corner


def test_every_drawn_lesion_belongs_to_one_concept():
    covered = [kind for kinds in lesion_images.DRAWN.values() for kind in kinds]
    # Beading is a change of the veins, not a lesion that the published concepts name.
    assert sorted([*covered, "venous_beading"]) == sorted(LESIONS)


def test_the_truth_of_drawn_images_is_what_their_masks_show():
    images = lesion_images.drawn(60, seed=5, population="shifted", mask_size=128)
    shown = np.array([images.masks(row).any(axis=(1, 2)) for row in range(60)])
    assert np.array_equal(images.truth, shown)
    assert images.truth.any(axis=0).all()  # new vessels too: the population has every grade


def test_a_mask_covers_exactly_the_kinds_of_its_concept():
    images = lesion_images.drawn(60, seed=5, population="shifted", mask_size=64)
    row = int(images.truth.sum(axis=1).argmax())
    assert images.truth[row].sum() >= 3
    drawn = draw(row, size=64, seed=5, population="shifted").masks
    for mask, kinds in zip(images.masks(row), lesion_images.DRAWN.values(), strict=True):
        layers = [drawn[kind] for kind in kinds if kind in drawn]
        expected = np.any(layers, axis=0) if layers else np.zeros((64, 64), bool)
        assert np.array_equal(mask, expected)


def test_a_split_keeps_patients_whole_and_depends_on_the_seed_alone():
    images = lesion_images.drawn(101, seed=1)
    trained, questioned = lesion_images.split(images, seed=3)
    assert sorted([*trained, *questioned]) == list(range(101))
    assert not set(images.patient_id[trained]) & set(images.patient_id[questioned])
    assert 30 <= len(questioned) <= 31
    again, other = lesion_images.split(images, seed=3)[1], lesion_images.split(images, seed=4)[1]
    assert np.array_equal(questioned, again)
    assert not np.array_equal(questioned, other)


def test_too_few_and_too_many_images_are_refused():
    with pytest.raises(InputError, match="9 images are too few"):
        lesion_images.drawn(9)
    with pytest.raises(InputError, match=r"100,000,000,000 images are more than are drawn \(1,000,000\)"):
        lesion_images.drawn(10**11)
