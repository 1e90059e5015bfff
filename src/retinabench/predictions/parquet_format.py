"""The predictions file as Parquet, and as an Arrow table, which CSV passes through as well."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.predictions.columns import (
    KNOWN,
    MAX_TEXT,
    OPTIONAL,
    TEXT,
    check_columns,
    check_size,
    metadata_json,
    read_metadata,
    sample_number,
)
from retinabench.predictions.subgroups import keep_further, to_arrow
from retinabench.predictions.table import Predictions

METADATA_KEY = b"retinabench"


def read_parquet(path: Path) -> Predictions:
    """Read a Parquet file, only after its declared size is checked."""
    try:
        file = pa.parquet.ParquetFile(path)
        names = file.schema_arrow.names
        check_columns(path, names)
        check_size(path, file.metadata.num_rows, 1)
        table = file.read()
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        if isinstance(error, (FileNotFoundError, PermissionError)):
            raise
        raise InputError("is not a whole Parquet file", file=path, hint="Write or copy it again.") from None
    metadata = read_metadata(path, (file.schema_arrow.metadata or {}).get(METADATA_KEY, b"{}"))
    return from_table(path, table, metadata)


def from_table(
    path: Path, table: pa.Table, metadata: dict[str, Any], *, untyped: bool = False
) -> Predictions:
    """Return the predictions in an Arrow table with the columns of `Predictions`.

    Args:
        path: The file, for messages.
        table: The table.
        metadata: The file metadata.
        untyped: Whether text of further columns may stand for numbers, as in a CSV.

    Returns:
        The checked predictions.

    Raises:
        InputError: A cell is empty, of a wrong type or not valid.
    """
    columns: dict[str, Any] = {}
    further: dict[str, pa.Array] = {}
    twice = {name for name, times in Counter(table.column_names).items() if times > 1}
    for name, chunked in zip(table.column_names, table.columns, strict=True):
        column = combined(chunked)
        if name not in KNOWN and sample_number(name) is None:
            if column.null_count < len(column) and name not in twice:
                further[name] = column
            continue
        if column.null_count and column.null_count < len(column):
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]) + 1
            raise InputError("is empty", file=path, row=row, column=name, hint="Fill it, or drop the row.")
        if column.null_count:  # a column that is empty throughout says nothing
            if name in ("image_id", "label", "prob", "probs"):
                raise InputError("is empty in every row", file=path, column=name)
            continue
        columns[name] = _lists(path, column) if name == "probs" else _flat(path, name, column)
    samples = sorted((number, name) for name in columns if (number := sample_number(name)) is not None)
    if samples:
        columns["probs"] = np.stack([columns.pop(name) for _, name in samples], axis=1)
    elif "prob" in columns:
        columns["probs"] = columns.pop("prob")
    subgroups, notes = keep_further(further, table.num_rows, untyped=untyped)
    notes += [f"the column '{name[:60]}' is left out: it stands twice" for name in sorted(twice) if name]
    return Predictions(
        **columns, subgroups=subgroups, metadata=metadata, source=str(path), notes=tuple(notes)
    )


def combined(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(column.unify_dictionaries().chunks)


def _flat(path: Path, name: str, column: pa.Array) -> NDArray[Any]:
    if name in TEXT:
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            raise InputError(f"has type {column.type}, needed is text", file=path, column=name)
        try:
            words = column.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InputError(f"has type {column.type}, needed is text", file=path, column=name) from None
        lengths = pa.compute.utf8_length(words).to_numpy(zero_copy_only=False)
        if len(words) and lengths.max() > MAX_TEXT:  # an array of text is as wide as its longest cell
            raise InputError(
                f"has {lengths.max():,} characters, more than {MAX_TEXT:,}",
                file=path,
                row=int(lengths.argmax()) + 1,
                column=name,
                hint="Is a quotation mark missing?",
            )
        return np.asarray(words.to_pylist(), dtype=np.str_)
    try:
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise not_a_number(path, name, column) from None


def not_a_number(path: Path, name: str, column: pa.Array) -> InputError:
    """Return the error for the first value of a column that is not a number.

    Args:
        path: The file.
        name: The column.
        column: Its values.

    Returns:
        The error, to be raised.
    """
    for row, value in enumerate(column, start=1):
        try:
            value.cast(pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            text = str(value.as_py())
            comma = re.fullmatch(r"\s*[-+]?\d*,\d+\s*", text)
            hint = "Write decimals with a point, or separate the columns by semicolons." if comma else None
            return InputError(f"is '{text[:40]}', not a number", file=path, row=row, column=name, hint=hint)
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
            hint="Name a column of single numbers 'prob'.",
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
            hint="Give every image equally many.",
        )
    check_size(path, len(lengths), int(lengths[0]))
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


def to_table(predictions: Predictions) -> pa.Table:
    """Arrow table of the columns that are there."""
    columns: dict[str, Any] = {"image_id": predictions.image_id, "label": predictions.label}
    n, samples = predictions.probs.shape
    if samples == 1:
        columns["prob"] = predictions.probs[:, 0]
    else:
        offsets = pa.array(np.arange(0, n * samples + 1, samples, dtype=np.int64))
        columns["probs"] = pa.LargeListArray.from_arrays(offsets, pa.array(predictions.probs.ravel()))
    columns |= {name: values for name in OPTIONAL if (values := getattr(predictions, name)) is not None}
    columns |= {name: to_arrow(values) for name, values in predictions.subgroups.items()}
    return pa.table(columns)


def parquet_bytes(predictions: Predictions) -> bytes:
    """A Parquet file with the metadata in its footer."""
    metadata = {METADATA_KEY: metadata_json(predictions.metadata, predictions.samples).encode()}
    sink = io.BytesIO()
    pa.parquet.write_table(to_table(predictions).replace_schema_metadata(metadata), sink, compression="zstd")
    return sink.getvalue()
