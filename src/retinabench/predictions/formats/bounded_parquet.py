"""Parquet tables from untrusted files: what a file declares is checked before it is unfolded.

A few kilobytes of Parquet can stand for terabytes: a dictionary with one long text that every row names, runs of equal numbers, a
footer of a million columns. So the footer is measured first, text is read as a dictionary and never unfolded to more than
`MAX_TEXT_BYTES`, and all cells together are at most `MAX_VALUES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from retinabench.core.errors import InputError
from retinabench.predictions.arrow_columns import unfolded
from retinabench.predictions.columns import MAX_BYTES, MAX_VALUES

MAX_FOOTER = 1 << 25
UNFOLDING = "DELTA_BYTE_ARRAY"
"""An encoding of text by shared beginnings, which nothing bounds; usual writers do not choose it."""


def open_parquet(path: Path) -> pa.parquet.ParquetFile:
    """Open a Parquet file after measuring its footer; its text is read as dictionaries."""
    with open(path, "rb") as handle:
        handle.seek(max(0, path.stat().st_size - 8))
        length = int.from_bytes(handle.read(4), "little")
    if MAX_FOOTER < length < path.stat().st_size:
        raise InputError(
            f"describes its columns in {length:,} bytes, more than {MAX_FOOTER:,}",
            file=path,
            hint="Write fewer columns.",
        )
    schema = pa.parquet.read_schema(path)
    words = [field.name for field in schema if _is_text(field.type)]
    return pa.parquet.ParquetFile(path, read_dictionary=words, page_checksum_verification=True)


def read_columns(file: pa.parquet.ParquetFile, path: Path, names: Sequence[str] | None = None) -> pa.Table:
    """Read columns of a Parquet file, after checking what the file declares of them."""
    _check_declared(file.metadata, path, names)
    return file.read(columns=None if names is None else list(names))


def read_table(path: Path, names: Sequence[str] | None = None) -> pa.Table:
    """Read columns of a Parquet file with its text unfolded, within the limits of this module."""
    return unfold_all(read_columns(open_parquet(path), path, names), path)


def unfold_all(table: pa.Table, path: Path) -> pa.Table:
    """Return a table without dictionaries, or raise `InputError` where a column is too wide for its rows."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = unfolded(table.column(place), field.name, path)
            table = table.set_column(place, field.name, column)
    return table


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


def _check_declared(metadata: pa.parquet.FileMetaData, path: Path, names: Sequence[str] | None) -> None:
    wanted = None if names is None else set(names)
    values = size = 0
    for group in range(metadata.num_row_groups):
        rows = metadata.row_group(group)
        for place in range(rows.num_columns):
            column = rows.column(place)
            name = column.path_in_schema.partition(".")[0]
            if wanted is not None and name not in wanted:
                continue
            values += column.num_values
            size += column.total_uncompressed_size
            if UNFOLDING in column.encodings:
                raise InputError(
                    f"is encoded as {UNFOLDING}, whose size nothing bounds",
                    file=path,
                    column=name,
                    hint="Write it again without this encoding.",
                )
    if values > MAX_VALUES or size > MAX_BYTES:
        raise InputError(
            f"unfolds to {values:,} values of {size:,} bytes, more than are read at once "
            f"({MAX_VALUES:,} values, {MAX_BYTES:,} bytes)",
            file=path,
            hint="Write a part of it.",
        )
