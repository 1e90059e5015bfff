"""Parquet and NPZ files of predictions: of this package and of others, valid, with one fault each, and damaged."""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from hypothesis import strategies as st

from retinabench.predictions.formats import npz_bytes, parquet_bytes
from retinabench.predictions.table import Predictions
from torture.fuzz import plain
from torture.fuzz.case import Case
from torture.fuzz.damage import damages
from torture.fuzz.predictions import SCORE, as_read, tables
from torture.fuzz.tables import Truth, npz_file, parquet_file

METADATA: tuple[Any, ...] = (
    {"members": 4}, {"members": "x"}, {"members": 1e300}, {"members": None}, {"members": -1}, {"members": True},
    {"referable_from": "abc"}, {"referable_from": [2]}, {"referable_from": 9}, {"referable_from": None}, {"referable_from": 1e400},
    {"method": {}}, {"method": 7}, {"title": ["a"]}, {"title": "\ud800"}, {"setting": 5}, {"seed": "x"}, {"seed": [1]}, {"seed": 2**70},
    {"samples": [1]}, {"samples": "many"}, {"schema": "retinabench.predictions/2"}, {"schema": 3}, {"task": 3}, {"model": {"a": [1]}},
    {"metadata": "x"}, {"\ud800": 1}, {"a": float("nan")}, [], 3, None,
)  # fmt: skip
TEXTS = (
    "",
    "{",
    "[" * 20_000,
    "null",
    '{"a": NaN}',
    '{"members": 1' + "0" * 5000 + "}",
    "\ud800",
    '{"a": "' + "x" * 100_000 + '"}',
)


def of_package(truth: Truth, metadata: dict[str, Any] | None = None) -> Predictions:
    """The table as an object of this package."""
    optional: dict[str, Any] = {
        name: np.array(values)
        for name in ("grade", "patient_id", "domain", "split", "uncertainty")
        if (values := getattr(truth, name)) is not None
    }
    return Predictions(
        np.array(truth.image_id),
        np.array(truth.label),
        np.array(truth.samples),
        **optional,
        subgroups={name: np.array(values) for name, values in truth.further.items()},
        metadata=metadata or {"method": "dropout", "title": "MC dropout", "seed": 3, "members": 1},
    )


@st.composite
def own_files(draw: st.DrawFn) -> Case:
    """A Parquet or NPZ file of this package with damaged bytes: refused, or read as what was written."""
    truth = draw(tables())
    kind, write = draw(
        st.sampled_from((("Parquet", parquet_bytes), ("Parquet", parquet_bytes), ("NPZ", npz_bytes)))
    )
    content, said = draw(damages(write(of_package(truth))))
    return Case(
        f"predictions, {kind}",
        f"written by the package, {said}",
        {"table": content},
        SCORE,
        plain.score_differs(truth),
    )


@st.composite
def parquet_foreign(draw: st.DrawFn) -> Case:
    """A Parquet file of another writer: valid, or damaged, when it is read as pyarrow reads it."""
    truth = draw(tables())
    rng = random.Random(draw(st.integers(0, 2**32)))
    content = parquet_file(truth, rng)
    if draw(st.integers(0, 2)):
        read = plain.truth_of(plain.parquet_columns(content))
        return Case(
            "predictions, Parquet",
            "valid, foreign",
            {"table": content},
            SCORE,
            plain.score_differs(read),
            must="accept",
        )
    content, said = draw(damages(content))
    return Case(
        "predictions, Parquet",
        f"foreign, {said}",
        {"table": content},
        SCORE,
        as_read(content, plain.parquet_columns),
    )


@st.composite
def metadata(draw: st.DrawFn) -> Case:
    """A Parquet or NPZ file whose metadata are strange: refused, or read with the right numbers."""
    truth = draw(tables())
    rng = random.Random(draw(st.integers(0, 2**32)))
    text = draw(st.one_of(st.sampled_from(METADATA).map(json.dumps), st.sampled_from(TEXTS)))
    if draw(st.booleans()):
        sink = io.BytesIO()
        table = pa.parquet.read_table(io.BytesIO(parquet_file(truth, rng)))
        pa.parquet.write_table(
            table.replace_schema_metadata({b"retinabench": text.encode("utf-8", "surrogatepass")}), sink
        )
        read = plain.truth_of(plain.parquet_columns(sink.getvalue()))
        return Case(
            "predictions, Parquet",
            f"metadata {text[:60]!r}",
            {"table": sink.getvalue()},
            SCORE,
            plain.score_differs(read),
        )
    content = npz_file(truth, rng, text)
    return Case(
        "predictions, NPZ", f"metadata {text[:60]!r}", {"table": content}, SCORE, plain.score_differs(truth)
    )


def _forged(
    descr: str, shape: str, data: bytes = bytes(16), version: tuple[int, int] = (1, 0), order: str = "False"
) -> bytes:
    """An array file whose header says what is given."""
    header = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode(
        "latin1", "replace"
    )
    length = struct.pack("<H" if version == (1, 0) else "<I", len(header))
    return b"\x93NUMPY" + bytes(version) + length + header + data


FORGED = (
    _forged("'<f8'", "(1000000000000,)"), _forged("'<f8'", "(-1,)"), _forged("'<f8'", "(2, -3)"), _forged("'<f8'", "(2.5,)"),
    _forged("'|O'", "(2,)"), _forged("'<U1000000000'", "(1,)"), _forged("'<U2147483647'", "(3,)"), _forged("'<f8'", "()"),
    _forged("[('a', '<f8')]", "(2,)"), _forged("[('a', '|O')]", "(2,)"), _forged("'<M8[D]'", "(2,)"), _forged("'<c16'", "(1,)"),
    _forged("'<f8'", "(2,)", version=(2, 0)), _forged("'<f8'", "(2,)", version=(3, 0)), _forged("'<f8'", "(2,)", version=(9, 9)),
    _forged("'x'", "(2,)"), _forged("'<f8'", "(2,)", order="True"), _forged("'<f8'", "(2,)", order="3"), _forged("'|V8'", "(2,)"),
    _forged("'<f8'", "(" + "1," * 200 + ")"), _forged("'<f8'", "(" * 3000 + ")" * 3000, version=(2, 0)), _forged("'<f8'", "(0, 10000000000)"),
    _forged("'<U0'", "(1000000000,)"), _forged("'|S0'", "(5,)"), _forged("'<f8'", "(9999999999999999999999,)"), _forged("1" * 5000, "(2,)"),
    _forged("'<f2'", "(2,)"), _forged("'>f8'", "(2,)"), _forged("'|b1'", "(2,)"), _forged("__import__('os')", "(2,)"), b"", b"\x93NUMPY",
    b"not an array", np.array(["a\ud800", "b"]).astype("U2").tobytes(),
)  # fmt: skip


@st.composite
def npz_faults(draw: st.DrawFn) -> Case:
    """An NPZ file of which one array is forged, odd or of another length."""
    truth = draw(tables())
    n, rng = len(truth), random.Random(draw(st.integers(0, 2**32)))
    name = draw(
        st.sampled_from(
            (
                "image_id",
                "label",
                "probs",
                "patient_id",
                "grade",
                "uncertainty",
                "split",
                "metadata",
                "subgroups/site",
            )
        )
    )
    odd: tuple[Callable[[], Any], ...] = (
        lambda: rng.choice(FORGED),
        lambda: rng.choice(FORGED),
        lambda: np.array(["\ud800" + str(k) for k in range(n)]),
        lambda: np.array([b"\xff\xfe" + str(k).encode() for k in range(n)]),
        lambda: np.array([b"id" + str(k).encode() for k in range(n)]),
        lambda: np.zeros(n + 1),
        lambda: np.zeros((n, 1, 1)),
        lambda: np.zeros((n, 0)),
        lambda: np.array(3.0),
        lambda: np.zeros((2, n)),
        lambda: np.array([None] * n, object),
        lambda: np.arange(n) * 1j,
        lambda: np.full(n, np.datetime64("2020-01-01")),
        lambda: np.array([float("nan")] * n),
        lambda: np.arange(n, dtype=np.uint64) + 2**63,
        lambda: np.array([0x110000, 0x41] * n, np.uint32).view("<U2"),
    )
    content = npz_file(truth, rng, other={name: draw(st.sampled_from(odd))()})
    wrong = (
        as_read(content, plain.npz_columns)
        if name not in ("metadata", "subgroups/site")
        else plain.score_differs(truth)
    )
    return Case("predictions, NPZ", f"odd array {name}", {"table": content}, SCORE, wrong)


@st.composite
def npz_valid(draw: st.DrawFn) -> Case:
    """An NPZ file of another writer: valid, or with damaged bytes."""
    truth = draw(tables())
    content = npz_file(truth, random.Random(draw(st.integers(0, 2**32))))
    if draw(st.booleans()):
        return Case(
            "predictions, NPZ", "valid", {"table": content}, SCORE, plain.score_differs(truth), must="accept"
        )
    content, said = draw(damages(content))
    return Case("predictions, NPZ", f"foreign, {said}", {"table": content}, SCORE, plain.score_differs(truth))


def arrow_columns(rng: random.Random, n: int) -> dict[str, Callable[[], pa.Array]]:
    """Odd Arrow columns for `parquet_faults`."""
    return {
        "nulls": lambda: pa.nulls(n),
        "some nulls": lambda: pa.array([None if k % 2 else 0.5 for k in range(n)]),
        "lists of several lengths": lambda: pa.array([[0.1] * (1 + k % 3) for k in range(n)]),
        "empty lists": lambda: pa.array([[]] * n, pa.list_(pa.float64())),
        "lists with nulls": lambda: pa.array([[0.1, None]] * n),
        "null lists": lambda: pa.array([None if k == 1 else [0.2, 0.4] for k in range(n)]),
        "structs": lambda: pa.array([{"a": 1}] * n),
        "binary": lambda: pa.array([b"\xff\xfe"] * n),
        "decimals": lambda: pa.array([0.25] * n).cast(pa.decimal128(10, 4)),
        "timestamps": lambda: pa.array([0] * n, pa.timestamp("us", "UTC")),
        "huge integers": lambda: pa.array([2**63 + k for k in range(n)], pa.uint64()),
        "half floats": lambda: pa.array(np.full(n, 0.25, np.float16)),
        "booleans": lambda: pa.array([rng.random() < 0.5 for _ in range(n)]),
        "maps": lambda: pa.array([[("a", 1)]] * n, pa.map_(pa.string(), pa.int64())),
        "nested lists": lambda: pa.array([[[0.1]]] * n),
        "durations": lambda: pa.array([1] * n, pa.duration("s")),
        "zero bytes": lambda: pa.array([f"p\0{k}" for k in range(n)]),
        "infinite": lambda: pa.array([float("inf")] * n),
    }


@st.composite
def parquet_faults(draw: st.DrawFn) -> Case:
    """A Parquet file of which one column has another type or holds no values."""
    truth = draw(tables())
    rng = random.Random(draw(st.integers(0, 2**32)))
    table = pa.parquet.read_table(io.BytesIO(parquet_file(truth, rng)))
    name = draw(
        st.sampled_from(
            (
                "image_id",
                "label",
                "prob",
                "probs",
                "patient_id",
                "grade",
                "uncertainty",
                "split",
                "gradable",
                "site",
            )
        )
    )
    odd = arrow_columns(rng, len(truth))
    kind = draw(st.sampled_from(sorted(odd)))
    if name in table.column_names:
        table = table.drop_columns([name])
    sink = io.BytesIO()
    pa.parquet.write_table(table.append_column(name, odd[kind]()), sink)
    content = sink.getvalue()

    def check(folder: Path, printed: str) -> str:
        return "" if name == "gradable" else as_read(content, plain.parquet_columns)(folder, printed)

    return Case("predictions, Parquet", f"{name}: {kind}", {"table": content}, SCORE, check)
