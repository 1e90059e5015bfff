"""Every data set of `DATASETS` through one oracle: sound records, pictures of the asked size, the same every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from conftest import shared_path
from retinabench.data import DATASETS, find_dataset
from retinabench.data.images import Recipe
from retinabench.errors import InputError

SOURCES = {"synthetic": (None, {"images": 64}), "idrid": (("data", "idrid"), {})}


@pytest.fixture(params=DATASETS)
def opened(request):
    parts, options = SOURCES[request.param]
    root: Path | None = shared_path(*parts) if parts else None
    return find_dataset(request.param), root, options


def test_records_are_sound(opened):
    dataset, root, options = opened
    records = dataset.records(root, **options)
    assert len(np.unique(records.image_id)) == len(records)
    assert set(records.split) <= {"train", "validation", "test"}
    assert {"train", "test"} <= set(records.split)
    assert set(records.domain) <= {"in_domain", "shifted"}
    assert set(records.eye) <= {"left", "right", ""}
    assert (records.patient_id != "").all()
    known = records.p_referable[~np.isnan(records.p_referable)]
    assert ((known >= 0) & (known <= 1)).all()


def test_pictures_have_the_asked_size_and_are_the_same_every_time(opened):
    dataset, root, options = opened
    source = str(dataset.records(root, **options).source[0])
    for size in (32, 48):
        picture = dataset.read(source, root, Recipe(size))
        assert picture.shape == (size, size, 3)
        assert picture.dtype == np.uint8
        assert picture.std() > 5
        assert np.array_equal(picture, dataset.read(source, root, Recipe(size)))


def test_an_unknown_data_set_names_the_nearest():
    with pytest.raises(InputError, match="Did you mean 'synthetic'"):
        find_dataset("syntetic")
