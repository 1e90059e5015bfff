"""The versions of a drawn retina, against the same retina drawn without its lesions."""

from __future__ import annotations

import numpy as np

from retinabench.concepts.banks import lesion_images
from retinabench.concepts.occlusion.variants import ALL, variants


def test_filling_takes_away_most_of_what_the_lesion_changed():
    images = lesion_images.drawn(20, mask_size=128)
    row = int(np.flatnonzero(images.truth[:, images.concepts.index("hard_exudate")] == 1)[0])
    found = variants(images, row, 96, controls=2, seed=0)
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
    images = lesion_images.drawn(10, mask_size=64)
    row = int(np.flatnonzero(~images.truth.any(axis=1))[0])
    found = variants(images, row, 48, controls=1, seed=0)
    assert (found.filled, found.controls, found.rendered) == ({}, {}, {})
