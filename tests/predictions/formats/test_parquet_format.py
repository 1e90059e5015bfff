"""Invalid Parquet files are refused in one line."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from support.prediction_bytes import NONE, parquet, refused

PARQUET = {
    "truncated": (parquet()[:-20], "not a whole Parquet file"),
    "head only": (b"PAR1", "not a whole Parquet file"),
    "no column": (parquet(prob=NONE), "column 'prob': is missing"),
    "a null": (parquet(prob=[0.5, None]), "row 2, column 'prob': is empty"),
    "text": (parquet(prob=["0.5", "x"]), "row 2, column 'prob': is 'x', not a number"),
    "mixed sample counts": (parquet(prob=NONE, probs=[[0.1], [0.2, 0.3]]), "row 2, column 'probs': holds 2 samples"),
    "no samples": (parquet(prob=NONE, probs=pa.array([[], []], pa.list_(pa.float64()))), "has shape (2, 0)"),
    "a null sample": (parquet(prob=NONE, probs=[[0.1], [None]]), "row 2, column 'probs': holds an empty sample"),
    "samples of text": (parquet(prob=NONE, probs=[["x"], ["y"]]), "needed are lists of numbers"),
    "lists of lists": (parquet(prob=NONE, probs=[[[0.1]], [[0.2]]]), "needed are lists of numbers"),
    "probs without lists": (parquet(prob=NONE, probs=[0.1, 0.2]), "Name a column of single numbers 'prob'"),
    "prob of lists": (parquet(prob=[[0.1], [0.2]]), "column 'prob'"),
    "a structured id": (parquet(image_id=[{"x": 1}, {"x": 2}]), "column 'image_id': has type"),
    "binary id": (parquet(image_id=[b"a", b"\xff"]), "column 'image_id': has type binary"),
    "gradable of lists": (parquet(gradable=[[1], [1]]), "column 'gradable': has type list"),
    "infinite splits": (parquet(split=[float("inf"), 1.0]), "column 'split'"),
    "metadata": (parquet({"retinabench": "{"}), "unreadable metadata"),
    "metadata of a list": (parquet({"retinabench": "[1]"}), "unreadable metadata"),
    "another schema": (parquet({"retinabench": '{"schema": "x/9"}'}), "has schema 'x/9'"),
    "members": (parquet({"retinabench": '{"members": "two"}'}), "cannot be shared by 'two' members"),
}  # fmt: skip


@pytest.mark.parametrize("name", PARQUET)
def test_wrong_parquet_is_refused_in_one_line(folder, name):
    refused(folder, *PARQUET[name])


def written(path):
    predictions = rb.Predictions(
        ["a", "b", "é"], [0, 1, 1], [[0.25, 0.5], [0.5, 0.75], [1, 0.5]], [1, None, 3], ["p", "p", "q"],
        subgroups={"camera": np.array(["x", "", "y"]), "age": np.array([1, np.nan, 3])}, metadata={"method": "map", "members": 2},
    )  # fmt: skip
    rb.write_predictions(predictions, path)
    return path, predictions


def test_no_flipped_bit_reads_as_other_values(tmp_path):
    """Every 31st byte of a file of ours, among them names and types in the footer, which no page checksum covers."""
    path, wanted = written(tmp_path / "p.parquet")
    content, refusals, metadata = path.read_bytes(), 0, rb.read_predictions(path).metadata
    for place in range(5, len(content), 31):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :])
        try:
            found = rb.read_predictions(path)
        except InputError:
            refusals += 1
            continue
        assert found.metadata == metadata
        for name in ("image_id", "label", "probs", "grade", "patient_id"):
            np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    assert refusals > 0.5 * len(content) / 31


def test_a_table_that_another_program_changed_is_refused(tmp_path):
    path, _ = written(tmp_path / "p.parquet")
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["patient_id"]), path)
    with pytest.raises(InputError, match="does not match its checksum"):
        rb.read_predictions(path)
    pq.write_table(table.drop_columns(["patient_id"]).replace_schema_metadata(None), path)
    assert rb.read_predictions(path).patient_id is None
