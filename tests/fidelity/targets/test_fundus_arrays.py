"""How the shipped images were drawn."""

import itertools

import numpy as np
import pytest

import fundus_arrays
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.target import TARGETS


def test_drawing_anew_differs_by_a_grey_level_of_the_contrast_at_most():
    """Between processors the drawing may round differently (data/synthetic): the gain of 2 makes that 2, means 4."""
    plan = fundus_arrays.PLANS["fundus"]
    chosen, following = fundus_arrays.choose(plan, "in_domain", plan.train, start=0)
    test, _ = fundus_arrays.choose(plan, "in_domain", plan.test, start=following)
    data = load(TARGETS["fundus"])
    assert not {index // 2 for index in chosen} & {index // 2 for index in test}
    for place in (0, 400):
        difference = (
            fundus_arrays.draw_pooled(plan.seed, "in_domain", chosen[place]).astype(int) - data.train.inputs[place]
        )
        assert abs(difference).max() <= 4


@pytest.mark.parametrize("kind", fundus_arrays.CORRUPTIONS)
def test_a_stronger_corruption_changes_the_image_more(kind):
    image = np.random.default_rng(0).integers(0, 120, (56, 56, 3), dtype=np.uint8)
    corrupt = fundus_arrays.CORRUPTIONS[kind]
    changes = []
    for strength in fundus_arrays.STRENGTHS:
        changed = corrupt(image, strength, np.random.default_rng(1))
        assert changed.dtype == np.uint8
        assert changed.shape == image.shape
        changes.append(np.abs(changed.astype(int) - image).mean())
    assert all(a < b for a, b in itertools.pairwise(changes))


def test_pixelation_keeps_the_first_pixel_of_each_block():
    image = np.arange(36, dtype=np.uint8).reshape(6, 6, 1).repeat(3, axis=2)
    pixelated = fundus_arrays.CORRUPTIONS["pixelation"](image, 2, np.random.default_rng(0))
    assert pixelated[:, :, 0].tolist()[0] == [0, 0, 0, 3, 3, 3]
    assert pixelated[:, :, 0].tolist()[5] == [18, 18, 18, 21, 21, 21]
