"""Filling takes the texture around a part and nothing else, and a control has the same shape."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.concepts.occlusion.fill import fill, moved


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


def test_pixels_that_may_not_be_looked_at_are_not():
    image, mask = textured(), block()
    around = block(row=22, column=24, size=20)
    image[around] = 255
    filled = fill(image, mask, ~around)
    assert filled[mask].max() < 180


def test_nothing_to_fill_changes_nothing():
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
