"""CSV in every usual dialect; invalid files are refused in one line."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from support.prediction_bytes import DIALECTS, TABLE, read_bytes, refused


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
    "a header that is no text": (b"\xef\xbb\xef\xbb\xbfimage_id,label,prob\na,0,0.5\n", "holds a header that is no text"),
    "only a header": (b"image_id,label,prob\n", "holds no rows"),
    "no label": (b"image_id,lable,prob\na,0,0.5\n", "column 'label': is missing. Did you mean 'lable'? Add it, or name it with --column"),
    "no probability": (b"image_id,label,q\na,0,0.5\n", "column 'prob': is missing"),
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


@pytest.mark.parametrize("name", WRONG)
def test_wrong_csv_is_refused_in_one_line(folder, name):
    refused(folder, *WRONG[name])


def test_a_word_after_many_rows_is_found(folder):
    rows = "".join(f"i{k},{k % 2},0.5\n" for k in range(120_000))
    refused(folder, f"image_id,label,prob\n{rows}z,1,oops\n".encode(), "row 120001, column 'prob': is 'oops'")


def test_a_broken_line_after_many_rows_is_found(folder):
    rows = "".join(f"i{k},{k % 2},0.5\n" for k in range(120_000))
    refused(folder, f"image_id,label,prob\n{rows}z,1\n".encode(), "row 120001: has 2 columns")


def test_a_last_line_without_its_end_is_said(folder):
    """A file that was cut inside its last number reads as another number: no reader can tell, so it is said."""
    for name, content in DIALECTS.items():
        said = any("no line end" in note for note in read_bytes(folder, content).notes)
        assert said == (name == "no last line end"), name
    refused(folder, b"image_id,label,prob\na,0,0.25\nb,1", "row 2: has 2 columns where the header has 3")
