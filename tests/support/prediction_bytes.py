"""Predictions files as bytes, right and wrong ones, for the tests of every format."""

import io
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import retinabench as rb
from retinabench.core.errors import InputError

TABLE = "image_id,label,prob\na,0,0.25\nb,1,0.5\n"

DIALECTS = {
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


def read_bytes(folder, content, name="file"):
    path = folder / name
    path.write_bytes(content)
    return rb.read_predictions(path)


def refused(folder, content, message):
    """Check that reading a file of this content fails with this message, in one printable line that names the file."""
    path = folder / "wrong"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        rb.read_predictions(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert text.isprintable()
    assert len(text) <= 1100
    return text


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


NONE = pa.nulls(2)
