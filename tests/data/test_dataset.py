"""What a data set declares: its records, where its images come from, its card and its options."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.data.dataset import ArrayDataset, Records, concatenate, make_records
from retinabench.data.image_dataset import ImageDataset
from retinabench.data.prepared import Prepared
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.registry import DATASETS


def some_records(n):
    grade = np.random.default_rng(0).choice(5, n, p=[0.6, 0.1, 0.2, 0.05, 0.05])
    return make_records(
        (f"p{k}" for k in range(n)), grade, patient_id=(f"patient-{k // 2}" for k in range(n)),
        eye=["left", "right"] * (n // 2), split="train",
    )  # fmt: skip


def test_records_survive_a_round_trip_through_parquet(tmp_path):
    records = some_records(200)
    (tmp_path / "records.parquet").write_bytes(records.to_parquet())
    again = Records.from_parquet(tmp_path / "records.parquet")
    for name in ("image_id", "patient_id", "eye", "grade", "domain", "split", "source"):
        assert np.array_equal(getattr(records, name), getattr(again, name)), name
    assert np.isnan(again.p_referable).all()


@pytest.mark.parametrize("change", [{"grade": np.array([0, 7], np.int8)}, {"image_id": np.array(["a", "a"])}])
def test_records_refuse_bad_rows(change):
    good = some_records(2)
    columns = {name: getattr(good, name) for name in good.__dataclass_fields__}
    with pytest.raises(InputError):
        Records(**{**columns, **change})


@pytest.mark.parametrize("cuts", [(4, 8), (1, 7), (5, 5)])
def test_pictures_come_back_in_the_order_asked_for(tmp_path, cuts):
    pictures = np.random.default_rng(0).integers(0, 256, (10, 4, 4, 3), dtype=np.uint8)
    data = Prepared(tmp_path, "x", 4, "f", some_records(10), tuple(np.split(pictures, cuts)))
    rows = [9, 0, 5, 5, 3, 8]
    assert np.array_equal(data.images(rows), pictures[rows])
    assert np.array_equal(data.image("p7"), pictures[7])
    assert data.image("nobody") is None


def part(rows, group, ids=None):
    return ArrayDataset(np.full((rows, 2), len(group)), np.arange(rows), np.full(rows, group), image_id=ids)


def test_parts_become_splits_in_order():
    train, test = part(3, "train", np.array(["a", "b", "c"])), part(2, "clean", np.array(["d", "e"]))
    data = concatenate({"train": train, "test": test})
    assert {name: rows.tolist() for name, rows in data.splits.items()} == {"train": [0, 1, 2], "test": [3, 4]}
    again = data.part("test")
    assert again.groups.tolist() == ["clean", "clean"]
    assert again.image_id.tolist() == ["d", "e"]
    assert again.patient_id is None
    assert np.array_equal(again.inputs, test.inputs)
    assert data.take(np.array([4, 0])).targets.tolist() == [1, 0]


def test_a_corrupt_image_in_an_archive_is_named(tmp_path):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("x.jpg", b"\xff\xd8 broken")
    (tmp_path / "images.zip").write_bytes(sink.getvalue())
    with pytest.raises(InputError, match=r"images\.zip: x\.jpg"):
        DATASETS.find("folder").image("x.jpg", tmp_path, Recipe(16))


def test_options_are_checked_and_the_card_is_the_docstring_of_the_module():
    """Here: of this module, which defines `records`."""
    data = ImageDataset(records, "Ask for them.", options=("split",))
    assert data.card.startswith("What a data set declares")
    data.check_options("ours", Path("somewhere"), {"split": "test"})
    DATASETS["synthetic"].check_options("synthetic", None, {"images": 64, "seed": 1})
    with pytest.raises(InputError, match="--column is not an option of the data set 'ours'"):
        data.check_options("ours", Path("somewhere"), {"columns": {}})
    with pytest.raises(InputError, match=r"ours is read from files.*--source\. Ask for them\."):
        data.check_options("ours", None, {})


def records(source):
    """No records."""
