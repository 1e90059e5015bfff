"""The data set of the conformance checks: what it writes can be opened, and its label can be read off its pixels."""

import numpy as np

from retinabench.data.easy_images import EASY_PARTS, write_easy_data
from retinabench.data.prepared import open_prepared


def test_referable_images_have_the_bright_patch(tmp_path):
    data = open_prepared(write_easy_data(tmp_path / "easy"))
    for domain, split, count in EASY_PARTS:
        of_part = (data.records.domain == domain) & (data.records.split == split)
        assert of_part.sum() == count
        assert len(np.unique(data.records.patient_id[of_part])) == count // 2
    patch = data.images(np.arange(len(data.records)))[:, 4:9, 4:9].astype(int)
    assert ((patch.min(axis=(1, 2, 3)) >= 140) == data.label).all()


def test_it_depends_on_its_seed_alone(tmp_path):
    one, two, other = (open_prepared(write_easy_data(tmp_path / name, seed=seed)) for name, seed in
                       (("a", 0), ("b", 0), ("c", 1)))  # fmt: skip
    assert one.fingerprint == two.fingerprint != other.fingerprint
