"""Invalid Parquet files are refused in one line."""

from __future__ import annotations

import pyarrow as pa
import pytest

from support.prediction_bytes import NONE, parquet, refused


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("formats")


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
    "metadata": (parquet({"retinabench": "{"}), "unreadable metadata"),
    "metadata of a list": (parquet({"retinabench": "[1]"}), "unreadable metadata"),
    "another schema": (parquet({"retinabench": '{"schema": "x/9"}'}), "has schema 'x/9'"),
    "members": (parquet({"retinabench": '{"members": "two"}'}), "cannot be shared by 'two' members"),
}  # fmt: skip


@pytest.mark.parametrize("name", PARQUET)
def test_wrong_parquet_is_refused_in_one_line(folder, name):
    refused(folder, *PARQUET[name])
