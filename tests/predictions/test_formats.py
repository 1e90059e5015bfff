import io
import pickle
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pyarrow.parquet as pq
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.predictions import io as files
from retinabench.predictions.io import read_predictions, read_table
from support.prediction_bytes import DIALECTS, NONE, TABLE, npz, parquet, read_bytes, refused


def table(rows, **columns):
    return pa.table(
        {
            "image_id": [f"i{k}" for k in range(rows)], "label": [k % 2 for k in range(rows)], "prob": [0.5] * rows,
            **columns,
        }
    )  # fmt: skip


def test_a_dictionary_of_one_long_text_is_not_unfolded(tmp_path):
    rows = 1_000_000
    long = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), ["x" * 1_000_000])
    path = tmp_path / "bomb.parquet"
    table = pa.table({"image_id": long, "label": [0] * rows, "prob": [0.5] * rows, "camera": long})
    pa.parquet.write_table(table, path)
    assert path.stat().st_size < 10_000_000  # unfolded: 1 TB
    with pytest.raises(InputError, match=r"column 'image_id': has a cell of 1,000,000 characters, too long for"):
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
    monkeypatch.setattr(files, "MAX_VALUES", 250)
    with pytest.raises(InputError, match="unfolds to 300 values"):
        read_predictions(path)
    assert read_table(path, ["label"]).num_rows == 100
    pa.parquet.write_table(table(4), path, use_dictionary=False, column_encoding={"image_id": "DELTA_BYTE_ARRAY"})
    with pytest.raises(InputError, match="DELTA_BYTE_ARRAY"):
        read_predictions(path)
    monkeypatch.setattr(files, "MAX_FOOTER", 100)
    with pytest.raises(InputError, match="describes its columns"):
        read_predictions(path)


def test_of_very_many_columns_the_first_hundred_are_read(tmp_path):
    path = tmp_path / "wide.parquet"
    pa.parquet.write_table(table(3, **{f"f{k}": [1.0, 2.0, 3.0] for k in range(150)}), path)
    found = read_predictions(path)
    assert list(found.subgroups) == [f"f{k}" for k in range(100)]
    assert any("50 further columns are left out" in note for note in found.notes)


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
    "an id with a zero byte": (parquet(image_id=["a", "b\0"]), "row 2, column 'image_id': holds a zero byte"),
    "binary id": (parquet(image_id=[b"a", b"\xff"]), "column 'image_id': has type binary"),
    "gradable of lists": (parquet(gradable=[[1], [1]]), "column 'gradable': has type list"),
    "infinite splits": (parquet(split=[float("inf"), 1.0]), "column 'split'"),
    "metadata": (parquet({"retinabench": "{"}), "unreadable metadata"),
    "metadata of a list": (parquet({"retinabench": "[1]"}), "unreadable metadata"),
    "another schema": (parquet({"retinabench": '{"schema": "x/9"}'}), "has schema 'x/9'"),
    "members": (parquet({"retinabench": '{"members": "two"}'}), "cannot be shared by 'two' members"),
}  # fmt: skip


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


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_gives_the_same_numbers(folder, name):
    found = read_bytes(folder, DIALECTS[name])
    assert found.image_id.tolist() == ["a", "b"]
    assert found.label.tolist() == [0, 1]
    np.testing.assert_array_equal(found.prob, [0.25, 0.5])
    assert found.grade is None


def test_ids_stay_text(folder):
    found = read_bytes(folder, b'image_id,label,prob\n007,0,0.25\nNA,1,0.5\nnan,0,1\n"x,""y""",1,0\n')
    assert found.image_id.tolist() == ["007", "NA", "nan", 'x,"y"']


def test_many_samples_widen_the_header_beyond_one_block(folder):
    header = ",".join(f"prob_{k}" for k in range(12_000))
    row = ",".join(["0.5"] * 12_000)
    found = read_bytes(folder, f"image_id,label,{header}\na,1,{row}\n".encode())
    assert found.samples == 12_000


WRONG = {
    "empty": (b"", "is empty"),
    "only a mark": (b"\xef\xbb\xbf", "is empty"),
    "only a line end": (b"\n", "is empty"),
    "a header that is late": (b"\nimage_id,label,prob\n", "empty first line"),
    "a header that is no text": (b"\xef\xbb\xef\xbb\xbfimage_id,label,prob\na,0,0.5\n", "holds a header that is not text"),
    "only a header": (b"image_id,label,prob\n", "holds no rows"),
    "no label": (b"image_id,lable,prob\na,0,0.5\n", "column 'label': is missing. Did you mean 'lable'? Add it, or name it with --column"),
    "no probability": (b"image_id,label,q\na,0,0.5\n", "column 'prob': is missing"),
    "twice in the header": (b"image_id,label,prob,prob\na,0,0.5,0.5\n", "appears twice"),
    "prob and prob_0": (b"image_id,label,prob,prob_0\na,0,0.5,0.5\n", "more than one of"),
    "a sample is missing": (b"image_id,label,prob_0,prob_2\na,0,0.5,0.5\n", "column 'prob_1': is missing among"),
    "samples from 1 on": (b"image_id,label,prob_1,prob_2\na,0,0.5,0.5\n", "column 'prob_0': is missing among the samples. Samples and classes are counted from 0"),
    "a grade is missing": (b"image_id,label,prob,grade_prob_0,grade_prob_2\na,0,0.5,0.5,0.5\n", "column 'grade_prob_1': is missing among the prob"),
    "columns of two classes": (b"image_id,label,no,yes\na,0,0.5,0.5\n", "--softmax --column prob_0=NAME --column prob_1=NAME"),
    "a sample twice": (b"image_id,label,prob_0,prob_00\na,0,0.5,0.5\n", "is missing among the samples"),
    "a word": (b"image_id,label,prob\na,0,0.5\nb,1,high\n", "row 2, column 'prob': is 'high', not a number"),
    "a thousand": (b"image_id,label,prob\na,0,1_000\n", "row 1, column 'prob': is '1_000', not a number"),
    "decimal commas": (b'image_id,label,prob\na,0,"0,5"\n', "is '0,5', not a number. Write decimals with a point"),
    "an empty cell": (b"image_id,label,prob\na,0,0.5\nb,1,\n", "row 2, column 'prob': is empty"),
    "an empty id": (b'image_id,label,prob\n"",0,0.5\nb,1,0\n', "row 1, column 'image_id': is empty"),
    "no ids": (b"image_id,label,prob\n,0,0.5\n,1,0\n", "column 'image_id': is empty in every row"),
    "an empty column": (b"image_id,label,prob\na,,0.5\nb,,0\n", "column 'label': is empty in every row"),
    "a long row": (b"image_id,label,prob\na,0,0.5\nb,1,0.5,7\n", "row 2: has 4 columns where the header has 3"),
    "a short row": (b"image_id,label,prob\na,0\n", "row 1: has 2 columns where the header has 3"),
    "unquoted separators": (b"image_id,label,prob\na,b,0,0.5\n", "Quote values that contain the separator"),
    "nan": (b"image_id,label,prob\na,0,nan\n", "row 1, column 'prob': is empty or nan"),
    "infinity": (b"image_id,label,prob\na,0,inf\n", "row 1, column 'prob': is inf"),
    "logits": (b"image_id,label,prob\na,0,-3.2\nb,1,4\n", "look like logits"),
    "percentages": (b"image_id,label,prob\na,0,3\nb,1,97\n", "look like percentages"),
    "grades": (b"image_id,label,prob\na,0,0\nb,3,0.9\n", "row 2, column 'label': is 3, not 0 or 1. These look like severity"),
    "label words": (b"image_id,label,prob\na,no,0\n", "row 1, column 'label': is 'no', not a number. Labels are 0 (not referable) or 1"),
    "duplicate": (b"image_id,label,prob\na,0,0.5\na,1,0\n", "row 2, column 'image_id': repeats 'a' of row 1"),
    "quoted line break": (b'image_id,label,prob\n"a\nb",0,0.5\n', "row 1, column 'image_id': holds a line break"),
    "stray quotes": (b'image_id,label,prob\n"a,0,0.5\n"b,1,0.5\n', "line break"),
    "an open quote": (b'image_id,label,prob\n"a,0,0.5\nb,1,0.5\n', "row 1"),
    "Latin-1": ("image_id,label,prob\nMüller,0,0.5\n".encode("latin-1"), "UTF-8"),
    "Latin-1 header": ("image_id,label,prob,größe\na,0,0.5,1\n".encode("latin-1") + b"\xfc,0,0.5,1\n", "UTF-8"),
    "UTF-16 without a mark": (TABLE.encode("utf-16-le"), "not Parquet, CSV or NPZ"),
    "UTF-32": (TABLE.encode("utf-32"), "is UTF-32 text"),
    "half a UTF-16 letter": (TABLE.encode("utf-16")[:-1], "UTF-8"),
    "zero bytes": (b"image_id,label,prob\na,0,0.5\nb\x00,1,0.5\n", "zero bytes"),
    "a very long id": (b"image_id,label,prob\n" + b"x" * 5000 + b",0,0.5\n", "row 1, column 'image_id': has 5,000"),
    "pickle": (pickle.dumps({"image_id": ["a"]}), "a pickle, which is never loaded"),
    "old pickle": (pickle.dumps({"image_id": ["a"]}, protocol=0), "column 'image_id': is missing"),
    "gzip": (b"\x1f\x8b\x08\x00abc", "is compressed (gzip). Unpack it"),
    "bars": (b"image_id|label|prob\na|0|0.5\n", "separates its columns by '|'. Separate them by commas"),
    "HDF5": (b"\x89HDF\r\n\x1a\n", "not Parquet, CSV or NPZ"),
    "npy": (b"\x93NUMPY\x01\x00", "not Parquet, CSV or NPZ"),
    "web page": (b"<!DOCTYPE html>\n<html>404</html>\n", "column 'image_id': is missing"),
    "domain": (b"image_id,label,prob,domain\na,0,0.5,aptos\n", "row 1, column 'domain': is 'aptos'. Valid"),
}  # fmt: skip


def test_a_word_or_a_broken_line_after_many_rows_is_found(folder):
    rows = "".join(f"i{k},{k % 2},0.5\n" for k in range(120_000))
    refused(folder, f"image_id,label,prob\n{rows}z,1,oops\n".encode(), "row 120001, column 'prob': is 'oops'")
    rows = "".join(f"i{k},{k % 2},0.5\n" for k in range(120_000))
    refused(folder, f"image_id,label,prob\n{rows}z,1\n".encode(), "row 120001: has 2 columns")


def test_a_last_line_without_its_end_is_said(folder):
    """A file that was cut inside its last number reads as another number: no reader can tell, so it is said."""
    for name, content in DIALECTS.items():
        said = any("no line end" in note for note in read_bytes(folder, content).notes)
        assert said == (name == "no last line end"), name
    refused(folder, b"image_id,label,prob\na,0,0.25\nb,1", "row 2: has 2 columns where the header has 3")


def zipped(**members):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return sink.getvalue()


def npy(array):
    sink = io.BytesIO()
    np.lib.format.write_array(sink, np.asarray(array))
    return sink.getvalue()


def declared(shape, descr="<f8"):
    sink = io.BytesIO()
    np.lib.format.write_array_header_1_0(sink, {"descr": descr, "fortran_order": False, "shape": shape})
    return sink.getvalue() + b"\x00" * 64


NPZ = {
    "truncated": (npz()[:-30], "not a whole NPZ file"),
    "head only": (b"PK\x03\x04", "not a whole NPZ file"),
    "objects": (npz(prob=np.array([0.5, {"x": 1}], object)), "column 'prob': holds Python objects, which are never"),
    "pickle in disguise": (
        zipped(image_id__npy=npy(["a"]), label__npy=pickle.dumps(1), prob__npy=npy([1.0])), "column 'label': is not a plain array",
    ),
    "Excel": (zipped(**{"[Content_Types]__xml": b"<x/>"}), "such as an Excel file"),
    "no column": (npz(prob=None), "column 'prob': is missing"),
    "half an array": (
        zipped(image_id__npy=npy(["a"]), label__npy=npy([1])[:-3], prob__npy=npy([1.0])), "column 'label': is not a whole array",
    ),
    "huge and empty": (zipped(image_id__npy=npy(["a"]), label__npy=npy([1]), prob__npy=declared((10**13,))), "holds 10,000,000,000,000 rows"),
    "declared and absent": (zipped(image_id__npy=npy(["a"]), label__npy=npy([1]), prob__npy=declared((10**6,))), "declares the shape"),
    "wide text": (npz(image_id=np.array(["a", "b" * 2000])), "wider than 1,000"),
    "complex": (npz(prob=np.array([0.5j, 0])), "has type complex128"),
    "a record": (npz(prob=np.zeros(2, [("x", "f8")])), "needed are numbers"),
    "dates": (npz(label=np.zeros(2, "datetime64[s]")), "needed are numbers"),
    "single value": (npz(label=np.array(1)), "column 'label': has a single value"),
    "samples as columns": (npz(prob=None, prob_0=np.array([0.1, 0.2])), "one (N, S) array named 'probs'"),
    "no samples at all": (npz(prob=np.array(0.5)), "is a single value"),
    "a title that cannot be shown": (npz(metadata=np.array('{"title": "\\ud800"}')), "unreadable metadata"),
    "half a surrogate pair": (npz(image_id=np.array(["a", "\ud800"])), "column 'image_id': holds text that is not valid Unicode"),
    "characters that do not exist": (npz(image_id=np.array([0x110000, 65], np.uint32).view("<U1")), "not valid Unicode"),
    "numbers as splits": (npz(split=np.array([0, 1])), "column 'split': is '0'"),
    "another length": (npz(uncertainty=np.array([0.1, 0.2, 0.3])), "column 'uncertainty': has 3 rows"),
    "referable from": (npz(grade=np.array([0, 2]), metadata=np.array('{"referable_from": [2]}')), "referable from grade [2]. Valid: 1"),
    "metadata": (npz(metadata=np.array("{")), "unreadable metadata"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "message"),
    [pytest.param(*case, id=name) for cases in (PARQUET, WRONG, NPZ) for name, case in cases.items()],
)
def test_a_wrong_file_is_refused_in_one_line(folder, content, message):
    refused(folder, content, message)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_python_unfolds_without_bound_is_refused(folder, method):
    """Ten kilobytes of bzip2 can stand for gigabytes, of which Python unfolds one piece at once."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as archive:
        archive.writestr("image_id.npy", npy([f"image {k}" for k in range(50)]))
        archive.writestr("label.npy", npy([0] * 50))
        archive.writestr("prob.npy", npy([0.5] * 50))
    refused(folder, sink.getvalue(), "compressed in a way that NumPy does not write")


@pytest.mark.filterwarnings("error")
def test_a_header_that_python_2_wrote_is_read(tmp_path):
    label = npy(np.array([0, 1])).replace(b"(2,), } ", b"(2L,), }")
    assert b"2L" in label
    content = zipped(image_id__npy=npy(["a", "b"]), label__npy=label, prob__npy=npy([0.2, 0.7]))
    (tmp_path / "p.npz").write_bytes(content)
    assert read_predictions(tmp_path / "p.npz").label.tolist() == [0, 1]
