"""How files are named and joined: seeds of one method stand together, anything else apart."""

from pathlib import Path

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.predictions.io import find_files, method_names


def predictions(**metadata):
    return rb.Predictions(["a", "b"], [0, 1], [0.2, 0.7], metadata=metadata)


def names(*pairs):
    return method_names([Path(file) for file, _ in pairs], [one for _, one in pairs])


def test_seeds_of_one_setting_share_a_name():
    runs = [
        ("r0/p.parquet", predictions(title="MAP", setting="x")),
        ("r1/p.parquet", predictions(title="MAP", setting="x")),
    ]
    assert names(*runs) == ["MAP", "MAP"]


def test_other_settings_of_one_method_are_told_apart():
    runs = [
        ("r0/p.parquet", predictions(title="MAP", setting="x")),
        ("r1/p.parquet", predictions(title="MAP", setting="y")),
    ]
    assert names(*runs) == ["MAP (x)", "MAP (y)"]


def test_files_without_metadata_are_never_taken_for_seeds_of_one_method():
    assert names(("ours.csv", predictions()), ("theirs.csv", predictions())) == ["ours", "theirs"]
    assert names(("a/p.csv", predictions()), ("b/p.csv", predictions())) == ["a/p.csv", "b/p.csv"]


def test_a_run_folder_stands_for_its_predictions(tmp_path):
    rb.write_predictions(predictions(), tmp_path / "predictions.parquet")
    assert find_files([tmp_path]) == [tmp_path / "predictions.parquet"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"predictions\.parquet"):
        find_files([tmp_path / "empty"])


def test_a_round_trip_keeps_metadata(tmp_path):
    rb.write_predictions(predictions(title="MAP", seed=3), tmp_path / "p.parquet")
    again = rb.read_predictions(tmp_path / "p.parquet")
    assert again.metadata["title"] == "MAP"
    assert np.array_equal(again.probs[:, 0], [0.2, 0.7])
