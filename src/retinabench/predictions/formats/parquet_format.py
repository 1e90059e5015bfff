"""The predictions file as Parquet, and as an Arrow table, which CSV is written from as well."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from retinabench.core.errors import InputError
from retinabench.predictions.arrow_columns import arguments_of_arrow, combined
from retinabench.predictions.columns import (
    OPTIONAL,
    check_columns,
    check_size,
    metadata_json,
    read_metadata,
    sample_number,
)
from retinabench.predictions.formats.bounded_parquet import open_parquet, read_columns, unfold_all
from retinabench.predictions.layouts import recognise
from retinabench.predictions.reading import Reading
from retinabench.predictions.subgroups import kept_places, to_arrow
from retinabench.predictions.table import Predictions
from retinabench.predictions.values import UNKNOWN_GRADE

METADATA_KEY, CHECKSUM_KEY = b"retinabench", b"retinabench.sha256"


def read_parquet(path: Path, reading: Reading) -> Predictions:
    """Read a Parquet file, only after its declared size is checked."""
    try:
        file = open_parquet(path)
        own = file.schema_arrow.names
        layout = recognise(own, reading.columns, str(path))
        check_columns(path, layout.names, own)
        check_size(
            path, file.metadata.num_rows, sum(sample_number(name) is not None for name in layout.names)
        )
        places, layout = kept_places(layout)
        table = read_columns(
            file, path, None if len(places) == len(own) else [own[place] for place in places]
        )
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        if isinstance(error, (FileNotFoundError, PermissionError)):
            raise
        raise InputError("is not a whole Parquet file", file=path, hint="Write or copy it again.") from None
    footer = file.schema_arrow.metadata or {}
    text = footer.get(METADATA_KEY, b"{}")
    if CHECKSUM_KEY in footer and footer[CHECKSUM_KEY] != _checksum(unfold_all(table, path), text):
        raise InputError(
            "does not match its checksum: it is damaged, or another program changed it",
            file=path,
            hint="Copy it again; after a change that is meant, write it with write_predictions.",
        )
    metadata = read_metadata(path, text)
    with layout.own_names():
        return Predictions(**arguments_of_arrow(str(path), table, layout, reading, metadata))


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
    if predictions.grade is not None:
        columns["grade"] = pa.array(predictions.grade, mask=predictions.grade == UNKNOWN_GRADE)
    columns |= {name: to_arrow(values) for name, values in predictions.subgroups.items()}
    return pa.table(columns)


def parquet_bytes(predictions: Predictions) -> bytes:
    """A Parquet file with the metadata and a checksum of everything in its footer."""
    table, text = to_table(predictions), metadata_json(predictions.metadata, predictions.samples).encode()
    table = table.replace_schema_metadata({METADATA_KEY: text, CHECKSUM_KEY: _checksum(table, text)})
    sink = io.BytesIO()
    pa.parquet.write_table(table, sink, compression="zstd", write_page_checksum=True)
    return sink.getvalue()


def _checksum(table: pa.Table, metadata: bytes) -> bytes:
    """SHA-256 of names, values and metadata. The checksums of pages, which are written as well, leave out the footer."""
    digest = hashlib.sha256(metadata)
    for name, chunked in zip(table.column_names, table.columns, strict=True):
        column = combined(chunked)
        digest.update(f"\n{name}\n{len(column)}\n".encode("utf-8", "surrogatepass"))
        if pa.types.is_large_list(column.type):
            digest.update(np.asarray(column.value_lengths().fill_null(-1)).tobytes())
            column = column.flatten()
        digest.update(np.packbits(np.asarray(column.is_valid())).tobytes())
        if pa.types.is_string(column.type):
            filled = column.fill_null("")
            ends = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset :][: len(filled) + 1]
            digest.update((ends - ends[0]).tobytes())
            digest.update(memoryview(filled.buffers()[2] or b"")[ends[0] : ends[-1]])
        elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
            digest.update(np.asarray(column.fill_null(0)).tobytes())
    return digest.hexdigest().encode()
