"""Shards of pixels: what is written is mapped again, and another array is refused."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.data.prepared.shard_files import fingerprint, mapped_shard, write_shard
from retinabench.data.records import make_records

IMAGES = np.arange(3 * 4 * 4 * 3, dtype=np.uint8).reshape(3, 4, 4, 3)


def records_of(n):
    return make_records(map(str, range(n)), [0] * n, split="test")


def test_a_shard_is_the_array_that_was_written(tmp_path):
    path = tmp_path / "images-00000.npy"
    write_shard(path, list(IMAGES))
    np.testing.assert_array_equal(mapped_shard(path, 4), IMAGES)
    np.testing.assert_array_equal(np.load(path), IMAGES)
    with pytest.raises(ValueError, match="holds uint8 of shape"):
        mapped_shard(path, 8)
    with pytest.raises(ValueError, match="in a shard of"):
        write_shard(path, [IMAGES[0], IMAGES[0, :2]])
    with pytest.raises(ValueError, match="in a shard of"):
        write_shard(path, IMAGES.astype(np.int16))


def test_the_fingerprint_knows_every_pixel_and_record(tmp_path):
    path, records = tmp_path / "images-00000.npy", records_of(3)
    write_shard(path, IMAGES)
    first = fingerprint(records, [path])
    assert fingerprint(records_of(2), [path]) != first
    write_shard(path, IMAGES + np.uint8(1))
    assert fingerprint(records, [path]) != first
