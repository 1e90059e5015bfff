"""Run lengths of COCO, plain and compressed."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.concepts.banks.coco import run_lengths, uncompressed


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
