"""Invalid NPZ files are refused in one line."""

from __future__ import annotations

import io
import pickle
import zipfile

import numpy as np
import pytest

from retinabench.predictions.io import read_predictions
from support.prediction_bytes import npz, refused


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
    "half a surrogate pair": (npz(image_id=np.array(["a", "\ud800"])), "column 'image_id': holds text that is no valid Unicode"),
    "characters that do not exist": (npz(image_id=np.array([0x110000, 65], np.uint32).view("<U1")), "no valid Unicode"),
    "numbers as splits": (npz(split=np.array([0, 1])), "column 'split': is '0'"),
    "another length": (npz(uncertainty=np.array([0.1, 0.2, 0.3])), "column 'uncertainty': has 3 rows"),
    "referable from": (npz(grade=np.array([0, 2]), metadata=np.array('{"referable_from": [2]}')), "referable from grade [2]. Valid: 1"),
    "metadata": (npz(metadata=np.array("{")), "unreadable metadata"),
}  # fmt: skip


@pytest.mark.parametrize("name", NPZ)
def test_wrong_npz_is_refused_in_one_line(folder, name):
    refused(folder, *NPZ[name])


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
