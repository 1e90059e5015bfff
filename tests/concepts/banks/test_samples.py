"""Samples lie in a prepared folder: resumable, memory-mapped, with their truth."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.concepts.banks import lesion_images, samples
from retinabench.concepts.banks.samples import prepare_samples, sample_rows
from retinabench.core.errors import InputError
from retinabench.data.dataset import ConceptImages
from retinabench.data.prepared.folder import open_prepared


def numbered(n, unknown=False):
    names = np.array([f"i{k}" for k in range(n)])
    truth = np.full((n, 1), -1 if unknown else 1, np.int8)
    return ConceptImages(
        names, ("x",), truth, names, lambda row, size: np.full((size, size, 3), row, np.uint8)
    )


def test_samples_carry_their_own_truth_and_image(tmp_path):
    images = lesion_images.drawn(12, seed=2, population="shifted", mask_size=64)
    data = prepare_samples(images, tmp_path, size=32, source={})
    assert np.array_equal(data.truth, images.truth)
    assert data.records.image_id.tolist() == images.sample_id.tolist()
    assert np.array_equal(data.images([7])[0], images.image(7, 32))
    assert np.array_equal(open_prepared(tmp_path).label, images.truth.astype(np.float32))


def test_a_killed_preparation_continues_to_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(samples, "SHARD", 4)
    whole = prepare_samples(numbered(10), tmp_path / "a", size=16, source={})
    seen = []

    def stopping(row, size):
        seen.append(row)
        if len(seen) == 6:
            raise KeyboardInterrupt
        return np.full((size, size, 3), row, np.uint8)

    killed = ConceptImages(
        *[getattr(numbered(10), f) for f in ("sample_id", "concepts", "truth", "patient_id")], stopping
    )
    with pytest.raises(KeyboardInterrupt):
        prepare_samples(killed, tmp_path / "b", size=16, source={})
    again = prepare_samples(killed, tmp_path / "b", size=16, source={})
    assert seen == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9]  # the first shard was whole
    assert again.fingerprint == whole.fingerprint
    assert [len(shard) for shard in again.shards] == [4, 4, 2]


def test_unknown_truth_is_nan_and_other_samples_are_refused(tmp_path):
    data = prepare_samples(numbered(2, unknown=True), tmp_path, size=16, source={"bank": "a"})
    assert np.isnan(data.label).all()
    with pytest.raises(InputError, match='another bank: "a" there, "b" here'):
        prepare_samples(numbered(2), tmp_path, size=16, source={"bank": "b"})
    with pytest.raises(InputError, match="not where"):
        prepare_samples(numbered(2), tmp_path / "regions", size=16, grid=2, source={})


def test_the_rows_of_regions():
    assert sample_rows(np.array([0, 2]), 1).tolist() == [0, 2]
    assert sample_rows(np.array([2]), 2).tolist() == [8, 9, 10, 11]
