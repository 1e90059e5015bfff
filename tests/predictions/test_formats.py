"""Readers and writers: round trips, a corpus of broken files, and random damage. Wrong input ends in `InputError` only."""

from __future__ import annotations

import io
import pickle
import re
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.predictions import columns, csv_format

FORMATS = ("parquet", "csv", "npz")
COLUMNS = ("image_id", "label", "probs", "grade", "patient_id", "domain", "split", "uncertainty")
WORDS = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
PROBS = st.floats(0, 1)


@st.composite
def predictions(draw):
    n, samples = draw(st.integers(1, 6)), draw(st.integers(1, 3))

    def maybe(strategy):
        return draw(st.none() | st.lists(strategy, min_size=n, max_size=n))

    ids = draw(st.lists(WORDS, min_size=n, max_size=n, unique=True))
    return rb.Predictions(
        ids,
        draw(hnp.arrays(np.int8, n, elements=st.integers(0, 1))),
        draw(hnp.arrays(np.float64, (n, samples), elements=PROBS)),
        grade=maybe(st.integers(0, 4)),
        patient_id=maybe(WORDS),
        domain=maybe(st.sampled_from(["in_domain", "shifted"])),
        split=maybe(st.sampled_from(["validation", "test"])),
        uncertainty=maybe(st.floats(-1e300, 1e300)),
        metadata={"method": draw(WORDS), "seed": draw(st.integers(0, 9)), "members": samples},
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("formats")


@pytest.mark.parametrize("kind", FORMATS)
@given(given_=predictions())
@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_round_trip(kind, folder, given_):
    path = folder / f"round.{kind}"
    rb.write_predictions(given_, path)
    back = rb.read_predictions(path)
    for name in COLUMNS:
        before, after = getattr(given_, name), getattr(back, name)
        assert (before is None) == (after is None)
        if before is not None:
            assert before.dtype.kind == after.dtype.kind
            np.testing.assert_array_equal(after, before)
    if kind != "csv":
        assert back.metadata["method"] == given_.metadata["method"]
        assert back.metadata["members"] == given_.samples


def read_bytes(folder, content, name="file"):
    path = folder / name
    path.write_bytes(content)
    return rb.read_predictions(path)


# -------------------------------------------------------------------------------------------- CSV that is right

TABLE = "image_id,label,prob\na,0,0.25\nb,1,0.5\n"
RIGHT = {
    "plain": TABLE.encode(),
    "no last line end": TABLE.rstrip().encode(),
    "Windows line ends": TABLE.replace("\n", "\r\n").encode(),
    "old Mac line ends": TABLE.replace("\n", "\r").encode(),
    "byte-order mark": TABLE.encode("utf-8-sig"),
    "UTF-16": TABLE.encode("utf-16"),
    "UTF-16 big-endian": b"\xfe\xff" + TABLE.encode("utf-16-be"),
    "semicolons": TABLE.replace(",", ";").encode(),
    "tabs": TABLE.replace(",", "\t").encode(),
    "decimal commas": TABLE.replace(",", ";").replace(".", ",").encode(),
    "quoted numbers": b'image_id,label,prob\n"a","0","0.25"\n"b","1","0.5"\n',
    "quoted header": b'"image_id","label","prob"\na,0,0.25\nb,1,0.5\n',
    "quoted decimal commas": b'image_id;label;prob\n"a";"0";"0,25"\n"b";"1";"0,5"\n',
    "spaces in the header": b"image_id, label , prob\na,0,0.25\nb,1,0.5\n",
    "labels with a point": b"image_id,label,prob\na,0.0,2.5e-1\nb,1.0,0.5\n",
    "a foreign column": b"comment,image_id,label,prob\n\"x, y\",a,0,0.25\nz,b,1,0.5\n",
    "pandas index": b",image_id,label,prob\n0,a,0,0.25\n1,b,1,0.5\n",
    "empty grade column": b"image_id,label,prob,grade\na,0,0.25,\nb,1,0.5,\n",
    "blank lines": b"image_id,label,prob\n\na,0,0.25\n\nb,1,0.5\n\n",
    "samples": b"image_id,label,prob_1,prob_0\na,0,0.5,0\nb,1,0,1\n",
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_every_dialect_gives_the_same_numbers(folder, name):
    found = read_bytes(folder, RIGHT[name])
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


# -------------------------------------------------------------------------------------------- CSV that is wrong

WRONG = {
    "empty": (b"", "is empty"),
    "only a mark": (b"\xef\xbb\xbf", "empty first line"),
    "only a line end": (b"\n", "empty first line"),
    "only a header": (b"image_id,label,prob\n", "holds no rows"),
    "no label": (b"image_id,Label,prob\na,0,0.5\n", "column 'label': is missing. Did you mean 'Label'?"),
    "no probability": (b"image_id,label,p\na,0,0.5\n", "column 'prob': is missing"),
    "twice in the header": (b"image_id,label,prob,prob\na,0,0.5,0.5\n", "stands twice"),
    "prob and prob_0": (b"image_id,label,prob,prob_0\na,0,0.5,0.5\n", "more than one of"),
    "a sample is missing": (b"image_id,label,prob_0,prob_2\na,0,0.5,0.5\n", "column 'prob_1': is missing among"),
    "a sample twice": (b"image_id,label,prob_0,prob_00\na,0,0.5,0.5\n", "is missing among the samples"),
    "a word": (b"image_id,label,prob\na,0,0.5\nb,1,high\n", "row 2, column 'prob': is 'high', not a number"),
    "a thousand": (b"image_id,label,prob\na,0,1_000\n", "row 1, column 'prob': is '1_000', not a number"),
    "decimal commas": (b'image_id,label,prob\na,0,"0,5"\n', "is '0,5', not a number. Write decimals with a point"),
    "an empty cell": (b"image_id,label,prob\na,0,0.5\nb,1,\n", "row 2, column 'prob': is empty"),
    "an empty id": (b'image_id,label,prob\n"",0,0.5\nb,1,0\n', "row 1, column 'image_id': is empty"),
    "an empty column": (b"image_id,label,prob\na,,0.5\nb,,0\n", "column 'label': is empty in every row"),
    "a long row": (b"image_id,label,prob\na,0,0.5\nb,1,0.5,7\n", "row 2: has 4 columns where the header has 3"),
    "a short row": (b"image_id,label,prob\na,0\n", "row 1: has 2 columns where the header has 3"),
    "unquoted separators": (b"image_id,label,prob\na,b,0,0.5\n", "Quote values that contain the separator"),
    "nan": (b"image_id,label,prob\na,0,nan\n", "row 1, column 'prob': is nan"),
    "infinity": (b"image_id,label,prob\na,0,inf\n", "row 1, column 'prob': is inf"),
    "logits": (b"image_id,label,prob\na,0,-3.2\nb,1,4\n", "look like logits"),
    "percentages": (b"image_id,label,prob\na,0,3\nb,1,97\n", "look like percentages"),
    "grades": (b"image_id,label,prob\na,0,0\nb,3,0.9\n", "row 2, column 'label': is 3, not 0 or 1. These look like severity"),
    "label words": (b"image_id,label,prob\na,no,0\n", "row 1, column 'label': is 'no', not a number"),
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
    "gzip": (b"\x1f\x8b\x08\x00abc", "not Parquet, CSV or NPZ"),
    "HDF5": (b"\x89HDF\r\n\x1a\n", "not Parquet, CSV or NPZ"),
    "npy": (b"\x93NUMPY\x01\x00", "not Parquet, CSV or NPZ"),
    "web page": (b"<!DOCTYPE html>\n<html>404</html>\n", "column 'image_id': is missing"),
    "domain": (b"image_id,label,prob,domain\na,0,0.5,aptos\n", "row 1, column 'domain': is 'aptos'. Valid"),
}  # fmt: skip


def refused(folder, content, message):
    path = folder / "wrong"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        rb.read_predictions(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert text.isprintable()
    assert len(text) <= 1100
    return text


@pytest.mark.parametrize("name", WRONG)
def test_wrong_csv_is_refused_in_one_line(folder, name):
    refused(folder, *WRONG[name])


def test_a_word_after_many_rows_is_found(folder):
    rows = "".join(f"i{k},{k % 2},0.5\n" for k in range(120_000))
    refused(folder, f"image_id,label,prob\n{rows}z,1,oops\n".encode(), "row 120001, column 'prob': is 'oops'")


def test_a_broken_line_after_many_rows_is_found(folder):
    rows = "".join(f"i{k},{k % 2},0.5\n" for k in range(120_000))
    refused(folder, f"image_id,label,prob\n{rows}z,1\n".encode(), "row 120001: has 2 columns")


# ------------------------------------------------------------------------------------------- Parquet and NPZ


def parquet(metadata=None, **columns):
    sink = io.BytesIO()
    table = pa.table({"image_id": ["a", "b"], "label": [0, 1], "prob": [0.25, 0.5], **columns})
    table = table.drop_columns([name for name in table.column_names if table[name].null_count == 2])
    pq.write_table(table.replace_schema_metadata(metadata), sink)
    return sink.getvalue()


def npz(**columns):
    sink = io.BytesIO()
    plain = {"image_id": np.array(["a", "b"]), "label": np.array([0, 1]), "prob": np.array([0.25, 0.5])}
    kept = {name: value for name, value in {**plain, **columns}.items() if value is not None}
    np.savez_compressed(sink, **kept)
    return sink.getvalue()


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


NONE = pa.nulls(2)
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
    "metadata": (npz(metadata=np.array("{")), "unreadable metadata"),
}  # fmt: skip


@pytest.mark.parametrize("name", PARQUET)
def test_wrong_parquet_is_refused_in_one_line(folder, name):
    refused(folder, *PARQUET[name])


@pytest.mark.parametrize("name", NPZ)
def test_wrong_npz_is_refused_in_one_line(folder, name):
    refused(folder, *NPZ[name])


@pytest.mark.parametrize(
    "content",
    [
        parquet(),
        parquet(label=[False, True], prob=np.array([0.25, 0.5], np.float32)),
        parquet(image_id=pa.array(["a", "b"]).dictionary_encode(), prob=["0.25", "0.5"]),
        parquet(prob=NONE, probs=[[0.0, 0.5], [0.5, 0.5]]),
        parquet(prob=NONE, probs=pa.array([[0.25], [0.5]], pa.list_(pa.float32(), 1))),
        npz(),
        npz(prob=np.array([[0.25], [0.5]], np.float16), label=np.array([False, True])),
        npz(image_id=np.array([b"a", b"b"]), note=np.array("foreign")),
    ],
)
def test_legal_variants(folder, content):
    found = read_bytes(folder, content)
    assert found.image_id.tolist() == ["a", "b"]
    np.testing.assert_array_equal(found.prob, [0.25, 0.5])


def test_files_that_are_too_large_are_refused_before_they_are_read(folder, monkeypatch):
    rows = "".join(f"i{k},{k % 2},0.5\n" for k in range(3000)).encode()
    monkeypatch.setattr(columns, "MAX_ROWS", 2000)
    monkeypatch.setattr(columns, "MAX_VALUES", 8000)
    monkeypatch.setattr(csv_format.pa.csv, "read_csv", None)  # never called
    refused(
        folder, b"image_id,label,prob\n" + rows, "holds 3,001 rows of 1 samples, more than are scored at once"
    )
    monkeypatch.setattr(csv_format, "MAX_CSV_BYTES", 100)
    refused(folder, b"image_id,label,prob\n" + rows, "is larger than")
    ids = [f"i{k}" for k in range(3000)]
    sink = io.BytesIO()
    pq.write_table(pa.table({"image_id": ids, "label": [0] * 3000, "prob": [0.5] * 3000}), sink)
    refused(folder, sink.getvalue(), "holds 3,000 rows")
    refused(
        folder, npz(image_id=np.array(ids), label=np.zeros(3000), prob=np.zeros(3000)), "holds 3,000 rows"
    )


# --------------------------------------------------------------------------------------------- random damage

SEEDS = [
    *RIGHT.values(),
    parquet(),
    parquet(prob=NONE, probs=[[0.1, 0.2], [0.2, 0.3]]),
    npz(),
    npz(grade=np.array([0, 3])),
]


@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 10**6), st.binary(max_size=4)), max_size=6),
    st.booleans(),
)
@settings(deadline=None, max_examples=600)
def test_damaged_files_are_read_or_refused(folder_of_damage, seed, edits, cut):
    content = bytearray(seed)
    for place, piece in edits:
        start = place % (len(content) + 1)
        content[start : start + len(piece)] = piece
    if cut and edits:
        del content[edits[0][0] % (len(content) + 1) :]
    read_or_refused(folder_of_damage, bytes(content))


@given(
    st.binary(max_size=200)
    | st.text(',;\n"0.51ab\t', max_size=60).map(lambda t: f"image_id,label,prob\n{t}".encode())
)
@settings(deadline=None, max_examples=600)
def test_random_bytes_are_read_or_refused(folder_of_damage, content):
    read_or_refused(folder_of_damage, content)


@pytest.fixture(scope="module")
def folder_of_damage(tmp_path_factory):
    return tmp_path_factory.mktemp("damage")


def read_or_refused(folder, content):
    try:
        found = read_bytes(folder, content)
    except InputError as error:
        printable = str(error).isprintable()
    else:
        printable = True
        assert np.isin(found.label, (0, 1)).all()
        assert ((found.probs >= 0) & (found.probs <= 1)).all()
        assert len(set(found.image_id.tolist())) == len(found)
    assert printable


def test_paths_that_are_no_files(tmp_path):
    for path, message in ((tmp_path, "is a folder"), (tmp_path / "none.csv", "does not exist")):
        with pytest.raises(InputError, match=message):
            rb.read_predictions(path)
    with pytest.raises(InputError, match=r"cannot write '\.txt'"):
        rb.write_predictions(rb.Predictions(["a"], [0], [0.5]), tmp_path / "x.txt")


@pytest.mark.parametrize("kind", FORMATS)
def test_odd_metadata_and_ids(kind, tmp_path):
    path = tmp_path / f"x.{kind}"
    given_ = rb.Predictions(["a"], [0], [0.5], metadata={"seed": np.int64(3), "when": tmp_path})
    rb.write_predictions(given_, path)
    if kind != "csv":
        assert rb.read_predictions(path).metadata["seed"] == 3
    odd = rb.Predictions(["a\udcff"], [0], [0.5])
    try:
        rb.write_predictions(odd, path)
    except InputError as error:
        message = str(error)
    else:
        message = rb.read_predictions(path).image_id[0]
    assert "Unicode" in message or message == "a\udcff"
