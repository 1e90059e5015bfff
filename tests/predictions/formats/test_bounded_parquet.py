"""Parquet files of a few kilobytes that stand for gigabytes; each is refused before it unfolds."""

import pyarrow as pa
import pyarrow.parquet
import pytest

from retinabench.core.errors import InputError
from retinabench.predictions.formats import bounded_parquet
from retinabench.predictions.formats.bounded_parquet import read_table
from retinabench.predictions.io import read_predictions


def table(rows, **columns):
    return pa.table(
        {
            "image_id": [f"i{k}" for k in range(rows)],
            "label": [k % 2 for k in range(rows)],
            "prob": [0.5] * rows,
            **columns,
        }
    )


def test_a_dictionary_of_one_long_text_is_not_unfolded(tmp_path):
    rows = 1_000_000
    long = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * 1_000_000])
    path = tmp_path / "bomb.parquet"
    pa.parquet.write_table(
        pa.table({"image_id": long, "label": [0] * rows, "prob": [0.5] * rows, "camera": long}), path
    )
    assert path.stat().st_size < 10_000_000  # unfolded: 1 TB
    with pytest.raises(
        InputError, match=r"column 'image_id': has a cell of 1,000,000 characters, too long for 1,000,000"
    ):
        read_predictions(path)
    with pytest.raises(InputError, match="too long"):
        read_table(path)


def test_a_long_cell_of_a_further_column_leaves_the_column_out(tmp_path):
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(table(4, camera=["x" * 10_000, "a", "a", "b"], site=["s", None, "s", "t"]), path)
    found = read_predictions(path)
    assert list(found.subgroups) == ["site"]
    assert found.subgroups["site"].tolist() == ["s", "", "s", "t"]
    assert any("'camera' is left out: has a cell of 10,000 characters" in note for note in found.notes)


def test_declared_values_and_encodings_are_checked_first(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pa.parquet.write_table(table(100), path)
    monkeypatch.setattr(bounded_parquet, "MAX_VALUES", 250)
    with pytest.raises(InputError, match="unfolds to 300 values"):
        read_predictions(path)
    assert read_table(path, ["label"]).num_rows == 100
    pa.parquet.write_table(
        table(4), path, use_dictionary=False, column_encoding={"image_id": "DELTA_BYTE_ARRAY"}
    )
    with pytest.raises(InputError, match="DELTA_BYTE_ARRAY"):
        read_predictions(path)
    monkeypatch.setattr(bounded_parquet, "MAX_FOOTER", 100)
    with pytest.raises(InputError, match="describes its columns"):
        read_predictions(path)


def test_of_very_many_columns_the_first_hundred_are_read(tmp_path):
    path = tmp_path / "wide.parquet"
    pa.parquet.write_table(table(3, **{f"f{k}": [1.0, 2.0, 3.0] for k in range(150)}), path)
    found = read_predictions(path)
    assert list(found.subgroups) == [f"f{k}" for k in range(100)]
    assert any("50 further columns are left out" in note for note in found.notes)
