"""Filling takes the texture around a part and nothing else, and a control has the same shape."""

import numpy as np
import pytest

from retinabench.concepts.banks import masks
from retinabench.concepts.occlusion.effects import ALL, OccludedImage, effect_of, fill, moved, variants


def textured(side=64, seed=0):
    """A slope with noise of std 4."""
    random = np.random.default_rng(seed)
    slope = np.linspace(60, 140, side)[None, :, None] + np.zeros((side, side, 3))
    return np.clip(slope + random.normal(0, 4, slope.shape), 0, 255).astype(np.uint8)


def block(side=64, row=28, column=30, size=8):
    mask = np.zeros((side, side), bool)
    mask[row : row + size, column : column + size] = True
    return mask


def test_a_part_is_filled_like_its_surroundings():
    image, mask = textured(), block()
    lesion = image.copy()
    lesion[mask] = 255
    filled = fill(lesion, mask, np.ones_like(mask))
    assert np.array_equal(filled[~mask], lesion[~mask])
    expected = image[mask].astype(float)
    # The mean of 64 pixels with noise of 4 has a standard error of 0.5; the slope is followed to a few grey levels.
    assert filled[mask].mean() == pytest.approx(expected.mean(), abs=3)
    assert filled[mask].max() < 150  # nothing of the lesion itself
    assert 2 < filled[mask].std(axis=0).mean() < 8  # texture, not a smooth patch


def test_pixels_that_may_not_be_looked_at_are_not_and_nothing_to_fill_changes_nothing():
    image, mask = textured(), block()
    around = block(row=22, column=24, size=20)
    image[around] = 255
    filled = fill(image, mask, ~around)
    assert filled[mask].max() < 180
    image = textured()
    assert np.array_equal(fill(image, block(), np.zeros((64, 64), bool)), image)
    assert np.array_equal(fill(image, np.zeros((64, 64), bool), np.ones((64, 64), bool)), image)


def test_a_control_has_the_same_pieces_elsewhere():
    mask = block(row=4, column=4, size=6) | block(row=30, column=10, size=3)
    free = np.ones_like(mask)
    free[:, 50:] = False
    found = moved(mask, free, np.random.default_rng(0))
    assert found is not None
    assert found.sum() == mask.sum()
    assert not (found & mask).any()
    assert not (found & ~free).any()


def test_a_shape_that_fits_nowhere_has_no_control():
    mask = block(size=8)
    assert moved(mask, block(row=0, column=0, size=7), np.random.default_rng(0)) is None
    assert moved(mask, np.zeros_like(mask), np.random.default_rng(0)) is None


def test_filling_takes_away_most_of_what_the_lesion_changed():
    images = masks.drawn(20, mask_size=128)
    row = int(np.flatnonzero(images.truth[:, images.concepts.index("hard_exudate")] == 1)[0])
    found = variants(images, row, 96, seed=0)
    original, without = found.original.astype(float), found.rendered["hard_exudate"]
    filled = found.filled["hard_exudate"]
    part = (filled != found.original).any(axis=2)
    before, after = (float((image - without)[part].mean()) for image in (original, filled.astype(float)))
    assert before > 8  # grey levels
    assert abs(after) < before / 3
    # Elsewhere the drawing without the lesion is the same, and filling touches nothing.
    assert np.abs(original - without)[~part].mean() < 0.5
    assert part.mean() < 0.1
    assert ALL in found.filled
    for control in found.controls["hard_exudate"]:
        changed = (control != found.original).any(axis=2)
        assert not (changed & part).any()
        assert changed.sum() <= 1.2 * part.sum()


def test_an_image_without_lesions_has_no_versions():
    images = masks.drawn(10, mask_size=64)
    row = int(np.flatnonzero(~images.truth.any(axis=1))[0])
    found = variants(images, row, 48, seed=0)
    assert (found.filled, found.controls, found.rendered) == ({}, {}, {})


def answer(patient, before, occluded, controls, rendered=None):
    rows = [np.array([p, 0.5, np.nan]) for p in (before, occluded, *controls)]
    drawn = None if rendered is None else np.array([rendered, 0.5, np.nan])
    stack = np.stack(rows[2:]) if controls else np.empty((0, 3))
    return OccludedImage("i", patient, "x", 0.01, rows[0], rows[1], stack, drawn)


def test_changes_by_hand():
    answered = [
        answer("a", 0.9, 0.3, [0.8, 0.9], 0.2),
        answer("b", 0.6, 0.6, [0.6, 0.4], 0.6),
        answer("b", 0.2, 0.1, []),  # no control: left out
    ]
    found = effect_of("x", answered, replicates=200, seed=0)
    assert (found.images, found.patients, found.without_control) == (2, 2, 1)
    assert found.before == pytest.approx(0.75)
    assert found.probability["occluded"].value == pytest.approx(-0.3)
    assert found.probability["control"].value == pytest.approx(-0.075)
    assert found.probability["difference"].value == pytest.approx(-0.225)
    assert found.probability["rendered"].value == pytest.approx(-0.35)
    assert found.probability["error"].value == pytest.approx(0.05)
    assert found.probability["difference"].low == pytest.approx(-0.55)  # both replicates of patient a
    assert found.uncertainty["occluded"].value == 0
    assert found.epistemic is None
    assert (found.referred, found.reversed_occluded, found.reversed_control) == (2, 1, 0.5)


def test_without_a_control_nothing_is_known():
    found = effect_of("x", [answer("a", 0.9, 0.3, [])], replicates=200, seed=0)
    assert found.probability["difference"].to_dict()["value"] is None
    assert found.before is None
