"""What became of every file of a data set: one row per image, in order, also of those that could not be read.

Columns: image_id, source, sha256 (of the file's bytes; empty for drawn pictures and files that are not there), bytes,
width and height (of the original, as stored), status ('ok', 'bad'), reason (of a bad one).
"""

from __future__ import annotations

import csv
import hashlib
import io
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from retinabench.core.errors import printable

SCHEMA = pa.schema(
    [
        ("image_id", pa.string()),
        ("source", pa.string()),
        ("sha256", pa.string()),
        ("bytes", pa.int64()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("status", pa.string()),
        ("reason", pa.string()),
    ]
)


def to_parquet(table: pa.Table) -> bytes:
    """Return a table as the bytes of a Parquet file; they depend on its values alone, not on how it was put together."""
    sink = io.BytesIO()
    pa.parquet.write_table(table.combine_chunks(), sink)
    return sink.getvalue()


def bad_rows(table: pa.Table) -> pa.Table:
    """Return the rows of files that could not be read."""
    return table.filter(pa.compute.equal(table["status"], "bad"))


def bad_csv(table: pa.Table) -> bytes:
    """Return the bad files as CSV: image_id, source, reason."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("image_id", "source", "reason")
    writer.writerow(columns)
    writer.writerows([printable(row[name]) for name in columns] for row in bad_rows(table).to_pylist())
    return text.getvalue().encode()


def source_sha256(table: pa.Table) -> str:
    """Return one SHA-256 over all files: two data sets with the same one come from the same bytes."""
    digest = hashlib.sha256()
    for image_id, sha256 in zip(table["image_id"].to_pylist(), table["sha256"].to_pylist(), strict=True):
        digest.update(f"{image_id}\0{sha256}\n".encode())
    return digest.hexdigest()


def table_of(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    """Return rows as a table."""
    return pa.Table.from_pylist(rows, schema)
