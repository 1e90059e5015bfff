"""Reading and writing the predictions file as Parquet, CSV or NPZ.

The format is told by the first bytes, never by the file's name, and nothing is ever unpickled. A CSV may be
separated by commas, semicolons or tabs, carry a byte-order mark, and (between semicolons) use decimal commas.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from retinabench.errors import InputError, nearest
from retinabench.predictions import OPTIONAL, SCHEMA, Predictions
from retinabench.store import atomic_write

MAX_ROWS = 20_000_000  # image ids of so many rows still fit an ordinary machine's memory
MAX_VALUES = 400_000_000  # 3.2 GB of float64 probabilities
MAX_CSV_BYTES = 2 * 1024**3
TEXT = ("image_id", "patient_id", "domain", "split")
KNOWN = ("image_id", "label", "prob", "probs", *OPTIONAL)
METADATA_KEY = b"retinabench"


def read_predictions(path: str | Path) -> Predictions:
    """Read and check a predictions file (Parquet, CSV or NPZ; see `predictions.py` for its columns).

    Raises `InputError` naming file, row, column and cure.
    """
    path = Path(path)
    try:
        with open(path, "rb") as handle:
            head = handle.read(8)
        return _reader(path, head)(path)
    except IsADirectoryError:
        raise InputError(
            "is a folder, not a predictions file",
            file=path,
            cure="Name the file, such as predictions.parquet in it.",
        ) from None
    except FileNotFoundError:
        raise InputError("does not exist", file=path) from None
    except PermissionError:
        raise InputError("cannot be read (no permission)", file=path) from None


def write_predictions(predictions: Predictions, path: str | Path) -> None:
    """Write `predictions` atomically; the ending (.parquet, .csv, .npz) chooses the format.

    A CSV has no room for the file metadata; Parquet and NPZ keep it.
    """
    path = Path(path)
    writers: dict[str, Callable[[Predictions], bytes]] = {".parquet": _parquet, ".csv": _csv, ".npz": _npz}
    if path.suffix not in writers:
        raise InputError(f"cannot write '{path.suffix}'", file=path, cure="Valid: .parquet, .csv, .npz.")
    content = writers[path.suffix](predictions)
    with atomic_write(path) as handle:
        handle.write(content)


def _reader(path: Path, head: bytes) -> Callable[[Path], Predictions]:
    if not head:
        raise InputError("is empty", file=path, cure="Write one row per image.")
    if head.startswith(b"PAR1"):
        return _read_parquet
    if head.startswith(b"PK"):
        return _read_npz
    if head.startswith((b"\x80", b"\x93NUMPY", b"\x1f\x8b", b"\x89HDF")) or b"\x00" in head.lstrip(
        b"\xff\xfe"
    ):
        kind = "a pickle, which is never loaded" if head.startswith(b"\x80") else "not Parquet, CSV or NPZ"
        if not head.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise InputError(f"is {kind}", file=path, cure="Write a CSV with image_id, label, prob.")
    return _read_csv


# ---------------------------------------------------------------------------------------------------- Parquet


def _read_parquet(path: Path) -> Predictions:
    try:
        file = pa.parquet.ParquetFile(path)
        names = file.schema_arrow.names
        _columns(path, names)
        _size(path, file.metadata.num_rows, 1)
        table = file.read(
            columns=[name for name in names if name in KNOWN or _sample_number(name) is not None]
        )
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        if isinstance(error, (FileNotFoundError, PermissionError)):
            raise
        raise InputError("is not a whole Parquet file", file=path, cure="Write or copy it again.") from None
    metadata = _metadata(path, (file.schema_arrow.metadata or {}).get(METADATA_KEY, b"{}"))
    return _from_table(path, table, metadata)


def _from_table(
    path: Path, table: pa.Table, metadata: dict[str, Any], numbers: str = "number"
) -> Predictions:
    columns: dict[str, Any] = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if column.null_count and column.null_count < len(column):
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]) + 1
            raise InputError("is empty", file=path, row=row, column=name, cure="Fill it, or drop the row.")
        if column.null_count:  # a column that is empty throughout says nothing
            if name in ("image_id", "label", "prob", "probs"):
                raise InputError("is empty in every row", file=path, column=name)
            continue
        columns[name] = _lists(path, column) if name == "probs" else _flat(path, name, column)
    samples = sorted((number, name) for name in columns if (number := _sample_number(name)) is not None)
    if samples:
        columns["probs"] = np.stack([columns.pop(name) for _, name in samples], axis=1)
    elif "prob" in columns:
        columns["probs"] = columns.pop("prob")
    return Predictions(**columns, metadata=metadata, source=str(path))


def _flat(path: Path, name: str, column: pa.Array) -> NDArray[Any]:
    if name in TEXT:
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            raise InputError(f"has type {column.type}, needed is text", file=path, column=name)
        return np.asarray(column.cast(pa.string()).to_pylist(), dtype=np.str_)
    try:
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _not_a_number(path, name, column) from None


def _not_a_number(path: Path, name: str, column: pa.Array) -> InputError:
    """Find the first value of `column` that is no number."""
    for row, value in enumerate(column.to_pylist(), start=1):
        try:
            float(value)
        except (TypeError, ValueError):
            return InputError(f"is '{str(value)[:40]}', not a number", file=path, row=row, column=name)
    return InputError(f"has type {column.type}, needed are numbers", file=path, column=name)


def _lists(path: Path, column: pa.Array) -> NDArray[np.float64]:
    """(N, S) from a column of lists, all of one length."""
    if not (
        pa.types.is_list(column.type)
        or pa.types.is_large_list(column.type)
        or pa.types.is_fixed_size_list(column.type)
    ):
        raise InputError(
            "does not hold lists of numbers",
            file=path,
            column="probs",
            cure="Name a column of single numbers 'prob'.",
        )
    lengths = (
        np.asarray(column.value_lengths().to_numpy(zero_copy_only=False))
        if not pa.types.is_fixed_size_list(column.type)
        else np.full(len(column), column.type.list_size)
    )
    if len(lengths) == 0:
        return np.empty((0, 1))
    odd = np.flatnonzero(lengths != lengths[0])
    if odd.size:
        raise InputError(
            f"holds {lengths[odd[0]]} samples where row 1 holds {lengths[0]}",
            file=path,
            row=int(odd[0]) + 1,
            column="probs",
            cure="Give every image equally many.",
        )
    _size(path, len(lengths), int(lengths[0]))
    values = column.flatten()
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // int(lengths[0]) + 1
        raise InputError("holds an empty sample", file=path, row=row, column="probs")
    try:
        flat = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"has type {column.type}, needed are lists of numbers", file=path, column="probs"
        ) from None
    return np.asarray(flat).reshape(len(lengths), int(lengths[0]))


def _table(predictions: Predictions) -> pa.Table:
    columns: dict[str, Any] = {"image_id": predictions.image_id, "label": predictions.label}
    n, samples = predictions.probs.shape
    if samples == 1:
        columns["prob"] = predictions.probs[:, 0]
    else:
        offsets = pa.array(np.arange(0, n * samples + 1, samples, dtype=np.int64))
        columns["probs"] = pa.LargeListArray.from_arrays(offsets, pa.array(predictions.probs.ravel()))
    columns |= {name: values for name in OPTIONAL if (values := getattr(predictions, name)) is not None}
    return pa.table(columns)


def _parquet(predictions: Predictions) -> bytes:
    metadata = {METADATA_KEY: _metadata_json(predictions).encode()}
    sink = io.BytesIO()
    pa.parquet.write_table(_table(predictions).replace_schema_metadata(metadata), sink, compression="zstd")
    return sink.getvalue()


# -------------------------------------------------------------------------------------------------------- CSV


def _read_csv(path: Path) -> Predictions:
    if path.stat().st_size > MAX_CSV_BYTES:
        raise InputError(
            "is larger than 2 GiB", file=path, cure="Convert it to Parquet, or score a part of it."
        )
    with open(path, "rb") as handle:
        head = handle.read(65536)
    encoding = "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf8"
    header = head.decode(encoding, errors="replace").lstrip("\ufeff").splitlines()[0]
    delimiter = max(",;\t", key=header.count)
    names = [name.strip().strip('"') for name in header.split(delimiter)]
    _columns(path, names)

    def load(text: bool, decimal: str) -> pa.Table:
        known = [name for name in names if name in KNOWN or _sample_number(name) is not None]
        types = {name: pa.string() if text or name in TEXT else pa.float64() for name in known}
        return pa.csv.read_csv(
            path,
            # Only one thread can say in which row a line is broken.
            read_options=pa.csv.ReadOptions(
                encoding=encoding, column_names=names, skip_rows=1, use_threads=not text
            ),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=False),
            convert_options=pa.csv.ConvertOptions(
                column_types=types,
                include_columns=known,
                decimal_point=decimal,
                strings_can_be_null=True,
                null_values=[""],
                quoted_strings_can_be_null=True,
            ),
        )

    try:
        try:
            table = load(text=False, decimal=".")
        except pa.ArrowInvalid:
            # A decimal comma, a word among the numbers or a broken line: the second try tells which.
            try:
                table = load(text=False, decimal=",") if delimiter != "," else load(text=True, decimal=".")
            except pa.ArrowInvalid:
                table = load(text=True, decimal=".")
    except (pa.ArrowInvalid, UnicodeError) as error:
        raise _broken_csv(path, str(error)) from None
    _size(path, table.num_rows, max(1, len(names) - 2))
    return _from_table(path, table, {})


def _broken_csv(path: Path, message: str) -> InputError:
    if "UTF8" in message or "codec" in message:
        return InputError("is not UTF-8 text", file=path, cure="Save it as 'CSV UTF-8'.")
    if line := re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message):
        return InputError(
            f"has {line[3]} columns where the header has {line[2]}",
            file=path,
            row=int(line[1]) - 1,
            cure="Quote values that contain the separator.",
        )
    return InputError(f"cannot be read as CSV: {message.splitlines()[0]}", file=path)


def _csv(predictions: Predictions) -> bytes:
    table = _table(predictions)
    if "probs" in table.column_names:
        place = table.column_names.index("probs")
        table = table.drop_columns(["probs"])
        for number, values in enumerate(predictions.probs.T):
            table = table.add_column(place + number, f"prob_{number}", pa.array(values))
    sink = io.BytesIO()
    pa.csv.write_csv(table, sink)
    return sink.getvalue()


# -------------------------------------------------------------------------------------------------------- NPZ


def _read_npz(path: Path) -> Predictions:
    try:
        with np.load(path, allow_pickle=False) as archive:
            _columns(path, archive.files)
            metadata = _metadata(
                path, str(archive["metadata"]).encode() if "metadata" in archive.files else b"{}"
            )
            columns = {name: archive[name] for name in KNOWN if name in archive.files}
    except (zipfile.BadZipFile, EOFError, KeyError):
        raise InputError("is not a whole NPZ file", file=path, cure="Write or copy it again.") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            "holds Python objects, which are never unpickled",
            file=path,
            cure="Save plain arrays of numbers and text.",
        ) from None
    if "prob" in columns:
        columns["probs"] = columns.pop("prob")
    return Predictions(**columns, metadata=metadata, source=str(path))


def _npz(predictions: Predictions) -> bytes:
    arrays = {name: getattr(predictions, name) for name in ("image_id", "label", "probs", *OPTIONAL)}
    sink = io.BytesIO()
    np.savez_compressed(
        sink,
        metadata=np.asarray(_metadata_json(predictions)),
        **{name: values for name, values in arrays.items() if values is not None},
    )
    return sink.getvalue()


# ----------------------------------------------------------------------------------------------------- common


def _sample_number(name: str) -> int | None:
    match = re.fullmatch(r"prob_(\d+)", name)
    return int(match[1]) if match else None


def _columns(path: Path, names: list[str]) -> None:
    """Check that the needed columns are there, once each, and name the likely misspelling where not."""
    for name in names:
        if names.count(name) > 1 and (name in KNOWN or _sample_number(name) is not None):
            raise InputError("stands twice in the header", file=path, column=name)
    numbers = sorted(number for name in names if (number := _sample_number(name)) is not None)
    kinds = ("prob" in names) + ("probs" in names) + bool(numbers)
    if kinds > 1:
        raise InputError("holds more than one of prob, probs and prob_0 …", file=path, cure="Keep one.")
    if numbers and numbers != list(range(len(numbers))):
        missing = next(k for k in range(len(numbers)) if numbers[k] != k)
        raise InputError("is missing among the samples", file=path, column=f"prob_{missing}")
    for needed in ("image_id", "label", *(() if kinds else ("prob",))):
        if needed not in names:
            hint = nearest(needed, [name for name in names if name not in KNOWN] or names)
            raise InputError(
                "is missing",
                file=path,
                column=needed,
                cure=f"Rename or add it; the file has: {hint.partition('Valid: ')[2]}",
            )


def _size(path: Path, rows: int, samples: int) -> None:
    if rows > MAX_ROWS or rows * samples > MAX_VALUES:
        raise InputError(
            f"holds {rows:,} rows of {samples} samples, more than are scored at once "
            f"({MAX_ROWS:,} rows, {MAX_VALUES:,} values)",
            file=path,
            cure="Score a random part of it, drawn by patient.",
        )


def _metadata(path: Path, text: bytes) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        raise InputError(
            "has unreadable metadata", file=path, cure="Write it again with write_predictions."
        ) from None
    schema = content.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise InputError(f"has schema '{schema}', this version reads '{SCHEMA}'", file=path)
    return dict(content)


def _metadata_json(predictions: Predictions) -> str:
    return json.dumps(
        {**predictions.metadata, "schema": SCHEMA, "samples": predictions.samples}, sort_keys=True
    )
