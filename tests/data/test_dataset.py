import numpy as np
import pytest

from retinabench.data.dataset import ArrayDataset, Dataset, concatenate
from retinabench.data.datasets.uci import Regression, draw_splits
from retinabench.data.tasks import load_task
from support.helpers import make_prepared


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


def test_ids_are_kept_only_if_every_part_has_them():
    data = concatenate({"train": part(3, "train", np.array(["a", "b", "c"])), "test": part(2, "clean")})
    assert data.image_id is None


def test_columns_of_another_length_are_refused():
    with pytest.raises(ValueError, match="groups has 2 rows, targets has 3"):
        ArrayDataset(np.zeros((3, 1)), np.zeros(3), np.array(["a", "b"]))


def described(data: Dataset) -> None:
    """Check what the contract says, on any data set."""
    rows = np.array([3, 0])
    assert len(data) == len(data.inputs) == len(data.targets) == len(data.groups)
    assert len(data.inputs[rows]) == 2
    assert np.array_equal(data.inputs[rows][1], data.inputs[np.array([0])][0])
    for split in data.splits.values():
        assert len(np.unique(split)) == len(split)
        assert split.min() >= 0
        assert split.max() < len(data)
    for ids in (data.image_id, data.patient_id):
        assert ids is None or len(ids) == len(data)


def test_prepared_tasks_and_regression_sets_fulfil_the_contract(tmp_path):
    described(load_task(make_prepared(tmp_path / "data")))
    random = np.random.default_rng(0)
    train, test = draw_splits(40, 3)
    described(Regression("made", random.normal(size=(40, 2)), random.normal(size=40), train, test, ""))
