"""Further columns: kept as text or numbers by every format, within limits that are said aloud."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.predictions import subgroups
from retinabench.predictions.subgroups import from_arrow, keep_further

GOOD = {"image_id": ["a", "b", "c"], "label": [0, 1, 1], "probs": [0.1, 0.8, 0.4]}


def kept(**columns):
    return {
        name: values.tolist() for name, values in rb.Predictions(**GOOD, subgroups=columns).subgroups.items()
    }


def test_types_and_missing_cells():
    found = kept(
        camera=["A", "", None], age=[40, 41, 42], sharp=[True, False, True],
        date=np.array(["2026-01-02", "NaT", "2026-01-03"], "M8[D]"), raw=np.array([b"x", b"y", b""]),
    )  # fmt: skip
    assert found["camera"] == ["A", "", ""]
    assert found["age"] == [40.0, 41.0, 42.0]
    assert found["sharp"] == ["true", "false", "true"]
    assert found["date"] == ["2026-01-02", "", "2026-01-03"]
    assert found["raw"] == ["x", "y", ""]
    np.testing.assert_array_equal(kept(age=[1, None, np.nan])["age"], [1, np.nan, np.nan])


@pytest.mark.parametrize(
    ("cells", "values", "note"),
    [
        (["Zeiss", "Zeiss ", " Zeiss"], ["Zeiss"] * 3, "camera: read 'Zeiss ' as 'Zeiss', ' Zeiss' as 'Zeiss': they"),
        (["NW 400", "NW  400", "NW\u00a0400"], ["NW 400"] * 3, r"'NW  400' as 'NW 400', 'NW\xa0400' as 'NW 400'"),
        (["A\u200b", "A", "\ufeffA"], ["A"] * 3, r"'A\u200b' as 'A', '\ufeffA' as 'A'"),
        (["Mu\u0308ller", "M\u00fcller", "M\u00fcller"], ["M\u00fcller"] * 3, r"'Mu\u0308ller' as 'M\xfcller'"),
        (["A", "  ", ""], ["A", "", ""], "camera: read '  ' as empty"),
        ([" a", " b", " c"], ["a", "b", "c"], "' c' as 'c': they differ by blanks"),
    ],
)  # fmt: skip
def test_values_that_differ_by_blanks_are_one_group_and_a_note_says_so(cells, values, note):
    for given in (cells, np.array(cells, object), np.array(cells)):
        found = rb.Predictions(**GOOD, subgroups={"camera": given})
        assert found.subgroups["camera"].tolist() == values
        assert len(found.notes) == 1
        assert note in found.notes[0]


def test_many_values_with_blanks_are_counted():
    ids = [f"i{k}" for k in range(9)]
    found = rb.Predictions(ids, [0, 1, 1] * 3, [0.5] * 9, subgroups={"date": [f"{k} " for k in ids]})
    assert "'i2 ' as 'i2' and 6 more: they" in found.notes[0]
    assert found.subgroups["date"].tolist() == ids


def test_values_without_such_blanks_stay_as_they_are():
    for cells in (["A", "a b", ""], ["M\u00fcller", "\u5e74", "~"], ["", "", ""]):
        found = rb.Predictions(**GOOD, subgroups={"camera": np.array(cells)})
        assert found.subgroups["camera"].tolist() == cells
        assert found.notes == ()


def test_a_file_with_such_blanks_has_the_groups_of_one_without(tmp_path):
    (tmp_path / "p.csv").write_text(
        "image_id,label,prob,camera\na,0,0.1,Zeiss \nb,1,0.8,Zeiss\nc,1,0.4,Canon\n"
    )
    found = rb.read_predictions(tmp_path / "p.csv")
    assert found.subgroups["camera"].tolist() == ["Zeiss", "Zeiss", "Canon"]
    assert "camera: read 'Zeiss ' as 'Zeiss'" in found.notes[0]


def test_take_and_select_keep_them_aligned():
    predictions = rb.Predictions(
        **GOOD, split=["test", "validation", "test"], subgroups={"camera": ["A", "B", "C"], "age": [1, 2, 3]}
    )
    taken = predictions.take([2, 0])
    assert taken.subgroups["camera"].tolist() == ["C", "A"]
    assert predictions.select(split="test").subgroups["age"].tolist() == [1, 3]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"camera": ["A"]}, "column 'camera': has 1 rows where image_id has 3"),
        ({"label": [0, 1, 1]}, "column 'label': cannot be a further column"),
        ({"prob_0": [0, 1, 1]}, "column 'prob_0': cannot be a further column"),
        ({"": [0, 1, 1]}, "is no name"),
        ({"age": [1, np.inf, 2]}, "row 2, column 'age': is infinite"),
        ({"x": np.zeros((3, 2))}, "has shape (3, 2)"),
        ({"x": np.zeros(3, complex)}, "has type complex128"),
        ({"x": ["a", "b" * 300, "c"]}, "300 characters"),
        ({f"c{k}": [1, 2, 3] for k in range(101)}, "holds 101 columns"),
    ],
)
def test_what_is_refused(columns, message):
    with pytest.raises(InputError, match=re.escape(message)):
        rb.Predictions(**GOOD, subgroups=columns)


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1", " 2.5 ", ""], [1, 2.5, np.nan]),
        (["1", "NA", "-3e2"], [1, np.nan, -300]),
        (["0,5", "1", "2"], [0.5, 1, 2]),
        (["0", "0.5", "10"], [0, 0.5, 10]),
        (["007", "1", "2"], ["007", "1", "2"]),
        (["1", "two", "3"], ["1", "two", "3"]),
        (["NA", "NA", "NA"], ["NA", "NA", "NA"]),
        (["1e999", "1", "2"], ["1e999", "1", "2"]),
    ],
)
def test_a_column_of_a_csv_is_numbers_where_every_cell_is(cells, values):
    found = from_arrow(pa.array([cell or None for cell in cells]), untyped=True)
    np.testing.assert_array_equal(found, values)


def test_arrow_types():
    times = pa.array([0, 86_400_000_000, None], pa.timestamp("us"))
    assert from_arrow(times).tolist() == ["1970-01-01", "1970-01-02", ""]
    assert from_arrow(pa.array([3_600], pa.timestamp("s"))).tolist() == ["1970-01-01T01:00:00"]
    assert from_arrow(pa.array(["a", "b", "a"]).dictionary_encode()).tolist() == ["a", "b", "a"]
    assert from_arrow(pa.array(["1", "2"])).tolist() == ["1", "2"]


def test_what_is_left_out_is_said(tmp_path, monkeypatch):
    path = tmp_path / "p.csv"
    path.write_text('image_id,label,prob,remark,site\na,0,0.1,"x\ny",A\nb,1,0.8,z,B\n')
    found = rb.read_predictions(path)
    assert list(found.subgroups) == ["site"]
    assert "'remark' is left out: has a cell with a line break" in found.notes[0]
    monkeypatch.setattr(subgroups, "MAX_COLUMNS", 2)
    columns, notes = keep_further({f"c{k}": pa.array([1, 2]) for k in range(9)}, 2)
    assert list(columns) == ["c0", "c1"]
    assert len(notes) == 6
    assert notes[-1] == "2 other further columns are left out as well"


def test_names_that_a_format_uses_itself(tmp_path):
    for ending in ("csv", "npz", "parquet"):
        path = tmp_path / f"p.{ending}"
        rb.write_predictions(
            rb.Predictions(**GOOD, subgroups={"file": ["x", "y", "z"], "a/b": [1, 2, 3]}), path
        )
        again = rb.read_predictions(path)
        assert again.subgroups["file"].tolist() == ["x", "y", "z"]
        assert again.subgroups["a/b"].tolist() == [1, 2, 3]
