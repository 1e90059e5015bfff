import numpy as np
import pytest

from retinabench.concepts.banks import lesion_images
from retinabench.core.errors import InputError
from retinabench.data.synthetic.fundus import draw
from retinabench.data.synthetic.truth import LESIONS


def test_every_drawn_lesion_belongs_to_one_concept():
    covered = [kind for kinds in lesion_images.DRAWN.values() for kind in kinds]
    # Beading is a change of the veins, not a lesion that the published concepts name.
    assert sorted([*covered, "venous_beading"]) == sorted(LESIONS)


def test_the_truth_of_drawn_pictures_is_what_their_masks_show():
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


def test_samples_carry_their_own_truth_and_picture():
    images = lesion_images.drawn(12, seed=2, population="shifted", mask_size=64)
    rows = np.array([7, 3])
    found = lesion_images.gather(images, rows, size=32)
    assert list(found.sample_id) == ["shifted-000007", "shifted-000003"]
    assert np.array_equal(found.truth, images.truth[rows])
    assert np.array_equal(found.images[1], draw(3, size=32, seed=2, population="shifted").image)


def test_too_few_images_are_refused():
    with pytest.raises(InputError, match="9 images are too few"):
        lesion_images.drawn(9)
