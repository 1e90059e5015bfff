import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import retinabench as rb
from retinabench.core.errors import InputError, printable
from retinabench.predictions import columns
from retinabench.predictions import columns as subgroups
from retinabench.predictions.columns import from_arrow, keep_further, recognise


def test_bounds_are_reached_but_not_passed():
    columns.check_count(None, ["x"] * columns.MAX_FILE_COLUMNS)
    columns.check_size(None, columns.MAX_ROWS, columns.MAX_VALUES // columns.MAX_ROWS)
    for check in (
        lambda: columns.check_count("t.csv", ["x"] * (columns.MAX_FILE_COLUMNS + 1)),
        lambda: columns.check_size("t.csv", columns.MAX_ROWS + 1, 1),
        lambda: columns.check_size("t.csv", 2, columns.MAX_VALUES // 2 + 1),
    ):
        with pytest.raises(InputError, match="more than"):
            check()


def test_text_is_as_wide_as_its_longest_cell_in_every_row():
    columns.check_width(2**20, 2**10, "image_id", "t.csv")
    with pytest.raises(InputError, match=r"t.csv, column 'image_id': .*Shorten it to 1024 characters"):
        columns.check_width(2**20, 2**10 + 1, "image_id", "t.csv")


def test_metadata_make_the_round_trip_and_others_are_refused():
    text = columns.metadata_json({"seed": np.int64(3), "folder": Path("a")}, samples=4)
    found = columns.read_metadata(Path("p"), text.encode())
    assert found == {"seed": 3, "folder": "a", "samples": 4, "schema": columns.SCHEMA}
    for content, message in (
        (b"[1]", "unreadable metadata"),
        (b"{", "unreadable metadata"),
        (b'{"a": "\\ud800"}', "unreadable metadata"),
        (json.dumps({"schema": "retinabench.predictions/9"}).encode(), "has schema 'retinabench.predictions/9'"),
    ):
        with pytest.raises(InputError, match=message):
            columns.read_metadata(Path("p"), content)


RECOGNISED = {
    "scikit-learn": ("y_true,y_score", "label,prob"),
    "Keras": ("filename,target,pred", "image_id,label,prob"),
    "upper case": ("Image_ID,Label,Prob,Patient_ID,Split", "image_id,label,prob,patient_id,split"),
    "camel case": ("imageId,trueLabel,yProb,subjectID", "image_id,label,prob,patient_id"),
    "another spelling of gradable": ("image_id,label,prob,Gradeable", "image_id,label,prob,gradable"),
    "gradable as a question": ("image_id,label,prob,is_gradable", "image_id,label,prob,gradable"),
    "blanks": ("image id,ground truth,p referable", "image_id,label,prob"),
    "a decision beside a score": ("id,y_true,y_pred,y_score", "image_id,label,y_pred,prob"),
    "exact names win": ("image_id,filename,label,target,prob,score", "image_id,filename,label,target,prob,score"),
    "five classes": ("image,grade,class_0,class_1,class_2", "image_id,grade,prob_0,prob_1,prob_2"),
    "classes in any order": ("image,y,p1,p0", "image_id,label,prob_1,prob_0"),
    "samples stay": ("image_id,label,prob_0,prob_1,score", "image_id,label,prob_0,prob_1,score"),
    "features": ("image,y,p,feature_0,feature_1", "image_id,label,prob,feature_0,feature_1"),
    "not contiguous": ("image,y,p,class_1,class_2", "image_id,label,prob,class_1,class_2"),
    "a typo beside the real one": (
        "image_id,label,prob,patient_id,patients",
        "image_id,label,prob,patient_id,patients",
    ),
    "no typo": ("image_id,label,prob,site,sex,grader", "image_id,label,prob,site,sex,grader"),
    "other languages": ("image_id,label,prob,größe,年齢", "image_id,label,prob,größe,年齢"),
}


@pytest.mark.parametrize("name", RECOGNISED)
def test_usual_names(name):
    given, want = RECOGNISED[name]
    found = recognise(given.split(","), {})
    assert ",".join(found.names) == want
    assert bool(found.said()) == (given != want)


def test_a_named_uncertainty_is_not_the_uncertainty_whatever_its_name():
    layout = recognise(["image_id", "label", "prob", "uncertainty", "uncertainty_."], {})
    assert layout.names[3:] == ("uncertainty", "uncertainty_.")


def test_names_of_the_user_come_first():
    found = recognise(["file", "label", "y_true", "score"], {"label": "y_true"})
    assert found.names == ("image_id", "", "label", "prob")
    first, second = found.said()
    assert first == "read 'file' as image_id, 'score' as prob; --column NAME=COLUMN names another"
    assert second == "read 'y_true' as label"
    assert recognise(["a", "b", "c", "d"], {"prob_0": "c", "prob_1": "d"}).names == ("a", "b", "prob_0", "prob_1")


REFUSED = {
    "two labels": ("image,target,y_true,p", {}, "several columns that may be label: target, y_true. Say which: --column label=target"),
    "two ids": ("image,filename,y,p", {}, "several columns that may be image_id"),
    "two scores": ("image,y,score,p", {}, "several columns that may be prob: score, p"),
    "a score and classes": ("image,y,score,class_0,class_1", {}, "several columns that may be prob: score, class_0, class_1"),
    "a Cyrillic letter": ("image_id,l\u0430bel,prob", {}, "column 'l\u0430bel': looks like 'label' but holds U+0430 (cyrillic small letter a)"),
    "an invisible letter": ("image_id,label,pro\u200bb", {}, "looks like 'prob' but holds U+200B (zero width space)"),
    "wide letters": ("image_id,\uff4cabel,prob", {}, "looks like 'label' but holds U+FF4C"),
    "a look-alike beside the real one": ("image_id,label,l\u0430bel,prob", {}, "looks like 'label'"),
    "Label beside label": ("image_id,label,Label,prob", {}, "several columns that may be label: label, Label"),
    "a wrong letter": ("image_id,label,prob,patiend_id", {}, "column 'patiend_id': is spelt almost like 'patient_id'"),
    "a lost letter": ("image_id,label,prob,Subect_ID", {}, "almost like 'patient_id', which the table lacks. Say --column patient_id=Subect_ID"),
    "exchanged letters": ("image_id,label,prob,spilt", {}, "almost like 'split'"),
    "a letter too many": ("image_id,label,prob,domains", {}, "almost like 'domain'"),
    "a misspelt gradable": ("image_id,label,prob,gradabel", {}, "column 'gradabel': is spelt almost like 'gradable'"),
    "gradable twice": ("image_id,label,prob,gradable,Gradable", {}, "several columns that may be gradable: gradable, Gradable"),
    "absent": ("image,y,p", {"label": "truth"}, "column 'truth': is missing"),
    "unknown": ("image,y,p", {"lable": "y"}, "unknown column 'lable'. Did you mean 'label'?"),
    "named twice": ("image,y,p", {"label": "y", "grade": "y"}, "column 'y' is named twice"),
    "appears twice": ("image,y,y,p", {"label": "y"}, "appears twice in the header"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_may_be_two_things_is_refused(name):
    given, wanted, message = REFUSED[name]
    with pytest.raises(InputError) as caught:
        recognise(given.split(","), wanted)
    assert printable(message) in str(caught.value)


GOOD = {"image_id": ["a", "b", "c"], "label": [0, 1, 1], "probs": [0.1, 0.8, 0.4]}


def kept(**columns):
    return {name: values.tolist() for name, values in rb.Predictions(**GOOD, subgroups=columns).subgroups.items()}


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


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"camera": ["A"]}, "column 'camera': has 1 rows where image_id has 3"),
        ({"label": [0, 1, 1]}, "column 'label': cannot be a further column"),
        ({"prob_0": [0, 1, 1]}, "column 'prob_0': cannot be a further column"), ({"": [0, 1, 1]}, "is not a name"),
        ({"age": [1, np.inf, 2]}, "row 2, column 'age': is infinite"), ({"x": np.zeros((3, 2))}, "has shape (3, 2)"),
        ({"x": np.zeros(3, complex)}, "has type complex128"), ({"x": ["a", "b" * 300, "c"]}, "300 characters"),
        ({f"c{k}": [1, 2, 3] for k in range(101)}, "holds 101 columns"),
    ],
)  # fmt: skip
def test_what_is_refused(columns, message):
    with pytest.raises(InputError, match=re.escape(message)):
        rb.Predictions(**GOOD, subgroups=columns)


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1", " 2.5 ", ""], [1, 2.5, np.nan]), (["1", "NA", "-3e2"], [1, np.nan, -300]),
        (["0,5", "1", "2"], [0.5, 1, 2]), (["0", "0.5", "10"], [0, 0.5, 10]), (["007", "1", "2"], ["007", "1", "2"]),
        (["1", "two", "3"], ["1", "two", "3"]), (["NA", "NA", "NA"], ["NA", "NA", "NA"]),
        (["1e999", "1", "2"], ["1e999", "1", "2"]), (["1,100", "900", "2"], ["1,100", "900", "2"]),
        (["0,100", "1,250", "2"], [0.1, 1.25, 2]), (["1,5", "0.5", "2"], ["1,5", "0.5", "2"]),
        (["9007199254740992", "9007199254740993", "-1"], ["9007199254740992", "9007199254740993", "-1"]),
        (["9007199254740992", "9e15", ""], [2.0**53, 9e15, np.nan]),
    ],
)  # fmt: skip
def test_a_column_of_a_csv_is_numbers_where_every_cell_is(cells, values):
    found = from_arrow(pa.array([cell or None for cell in cells]), untyped=True)
    np.testing.assert_array_equal(found, values)


def test_arrow_types():
    times = pa.array([0, 86_400_000_000, None], pa.timestamp("us"))
    assert from_arrow(times).tolist() == ["1970-01-01", "1970-01-02", ""]
    assert from_arrow(pa.array([3_600], pa.timestamp("s"))).tolist() == ["1970-01-01T01:00:00"]
    assert from_arrow(pa.array(["a", "b", "a"]).dictionary_encode()).tolist() == ["a", "b", "a"]
    assert from_arrow(pa.array(["1", "2"])).tolist() == ["1", "2"]
    long = [2**53, 2**53 + 1, None]
    for column in (pa.array(long), pa.array(long, pa.uint64()), pa.array(long, pa.decimal128(20))):
        assert from_arrow(column).tolist() == [str(2**53), str(2**53 + 1), ""]
    assert kept(code=np.array([2**53, -1, 2**63 - 1]))["code"] == [str(2**53), "-1", str(2**63 - 1)]


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
        rb.write_predictions(rb.Predictions(**GOOD, subgroups={"file": ["x", "y", "z"], "a/b": [1, 2, 3]}), path)
        again = rb.read_predictions(path)
        assert again.subgroups["file"].tolist() == ["x", "y", "z"]
        assert again.subgroups["a/b"].tolist() == [1, 2, 3]
