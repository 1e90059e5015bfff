"""The predictions file as Parquet, and as an Arrow table, which CSV passes through as well."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from retinabench.core.errors import InputError
from retinabench.predictions.arrow_columns import arguments_of_arrow
from retinabench.predictions.columns import (
    OPTIONAL,
    check_columns,
    check_size,
    metadata_json,
    read_metadata,
)
from retinabench.predictions.layouts import Layout, recognise
from retinabench.predictions.reading import Reading
from retinabench.predictions.subgroups import to_arrow
from retinabench.predictions.table import Predictions
from retinabench.predictions.validation import UNKNOWN_GRADE

METADATA_KEY = b"retinabench"


def read_parquet(path: Path, reading: Reading) -> Predictions:
    """Read a Parquet file, only after its declared size is checked."""
    try:
        file = pa.parquet.ParquetFile(path)
        layout = recognise(file.schema_arrow.names, reading.columns, str(path))
        check_columns(path, layout.names, file.schema_arrow.names)
        check_size(path, file.metadata.num_rows, 1)
        table = file.read()
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        if isinstance(error, (FileNotFoundError, PermissionError)):
            raise
        raise InputError("is not a whole Parquet file", file=path, hint="Write or copy it again.") from None
    metadata = read_metadata(path, (file.schema_arrow.metadata or {}).get(METADATA_KEY, b"{}"))
    return predictions_of(path, table, layout, reading, metadata)


def predictions_of(
    path: Path,
    table: pa.Table,
    layout: Layout,
    reading: Reading,
    metadata: Mapping[str, Any],
    *,
    untyped: bool = False,
) -> Predictions:
    """Return the predictions in the Arrow table of a file; for the arguments see `arguments_of_arrow`.

    Args:
        path: The file, for messages.
        table: Its columns.
        layout: Which of them is which.
        reading: What the user says of them.
        metadata: The file metadata.
        untyped: Whether text of further columns may stand for numbers, as in a CSV.

    Returns:
        The checked predictions.
    """
    try:
        return Predictions(**arguments_of_arrow(str(path), table, layout, reading, metadata, untyped=untyped))
    except InputError as error:
        raise layout.error(error) from None


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
    """A Parquet file with the metadata in its footer."""
    metadata = {METADATA_KEY: metadata_json(predictions.metadata, predictions.samples).encode()}
    sink = io.BytesIO()
    pa.parquet.write_table(to_table(predictions).replace_schema_metadata(metadata), sink, compression="zstd")
    return sink.getvalue()
