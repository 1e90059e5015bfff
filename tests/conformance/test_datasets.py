"""Every data set of `DATASETS` through one oracle: sound records, images of the asked size, the same every time."""

from __future__ import annotations

import re

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.registry import DATASETS
from support.kaggle_layout import write_aptos, write_eyepacs, write_pictures

MANY = 64  # images, so that every task finds enough
SOURCES = {}


def source(make):
    """Register what writes a small source: (folder) -> source and options, named as the data set."""
    SOURCES[make.__name__] = make
    return make


# Small sources of the data sets:


@source
def synthetic(root):
    return None, {"images": MANY}


@source
def idrid(root):
    rows = [f"{k}.png,image{k},{('train', 'test')[k % 2]},{k % 5}" for k in range(MANY)]
    (root / "labels.csv").write_text("\n".join(["file,name,split,grade", *rows]))
    write_pictures(root, "", [(f"images/{k}.png", k % 5) for k in range(MANY)], "folder")
    return root, {}


@source
def eyepacs(root):
    return write_eyepacs(root, "parts", share=0.002), {}


@source
def aptos(root):
    return write_aptos(root, "zip", rows=MANY), {"split": "test"}


@source
def messidor(root):
    lines = ["image_id,adjudicated_dr_grade,adjudicated_dme,adjudicated_gradable"]
    lines += [f"{k}.png,{k % 5},0,1" for k in range(MANY)]
    (root / "messidor_data.csv").write_text("\n".join(lines))
    write_pictures(root, "IMAGES", [(f"{k}.png", k % 5) for k in range(MANY)], "zip")
    return root, {}


@source
def retinamnist(root):
    random = np.random.default_rng(0)
    images = random.integers(0, 255, (MANY, 28, 28, 3), dtype=np.uint8)
    names = [f"{split}_{kind}" for split in ("train", "val", "test") for kind in ("images", "labels")]
    np.savez(root / "small.npz", **dict(zip(names, [images, np.arange(MANY)[:, None] % 5] * 3, strict=True)))
    return root / "small.npz", {}


@source
def folder(root):
    lines = ["image,grade,split", *(f"{k},{k % 5},{('train', 'test')[k % 2]}" for k in range(MANY))]
    (root / "labels.csv").write_text("\n".join(lines))
    write_pictures(root, "", [(f"{k}.jpg", k % 5) for k in range(MANY)], "folder")
    return root, {}


def test_every_data_set_is_here():
    assert set(SOURCES) == set(DATASETS)


@pytest.fixture(params=DATASETS)
def opened(request, tmp_path):
    root, options = SOURCES[request.param](tmp_path)
    return DATASETS.find(request.param), root, options


def test_the_data_card_answers_the_questions(opened):
    dataset, _, _ = opened
    card = dataset.card
    assert len(dataset.steps) > 40
    assert "retinabench prepare" in dataset.steps
    if dataset is not DATASETS["synthetic"]:
        terms = {term.strip() for row in re.findall(r"^\| ([^|]+) \|", card, re.MULTILINE) for term in row.split(",")}
        assert terms >= {"input", "label", "population", "camera", "splits", "patients", "licence"}
        # One's own folder has nobody else to cite or to get it from.
        assert dataset is DATASETS["folder"] or terms >= {"citation", "how to get it"}


def test_records_are_sound(opened):
    dataset, root, options = opened
    records = dataset.records(root, **options)
    assert len(np.unique(records.image_id)) == len(records)
    assert set(records.split) <= {"train", "validation", "test"}
    assert "test" in set(records.split)
    assert set(records.domain) <= {"in_domain", "shifted"}
    assert set(records.eye) <= {"left", "right", ""}
    assert (records.patient_id != "").all()
    known = records.p_referable[~np.isnan(records.p_referable)]
    assert ((known >= 0) & (known <= 1)).all()


def test_pictures_have_the_asked_size_and_are_the_same_every_time(opened):
    dataset, root, options = opened
    source = str(dataset.records(root, **options).source[0])
    for size in (32, 48):
        picture = dataset.image(source, root, Recipe(size))
        assert picture.shape == (size, size, 3)
        assert picture.dtype == np.uint8
        assert picture.std() > 5
        assert np.array_equal(picture, dataset.image(source, root, Recipe(size)))


def test_an_unknown_data_set_names_the_nearest():
    with pytest.raises(InputError, match="Did you mean 'synthetic'"):
        DATASETS.find("syntetic")
