"""The predictions file as NPZ: plain arrays only, checked by their headers before memory is asked for."""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.predictions.columns import (
    KNOWN,
    MAX_TEXT,
    OPTIONAL,
    check_columns,
    check_size,
    metadata_json,
    read_metadata,
    sample_number,
)
from retinabench.predictions.subgroups import keep_further
from retinabench.predictions.table import Predictions

SUBGROUPS = "subgroups/"


def read_npz(path: Path) -> Predictions:
    """Read the plain arrays of an NPZ file; objects are never unpickled."""
    try:
        with zipfile.ZipFile(path) as archive:
            columns = _members(path, archive)
            subgroups, notes = _further(path, archive, len(np.atleast_1d(columns["image_id"])))
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError, IndexError):
        raise InputError("is not a whole NPZ file", file=path, hint="Write or copy it again.") from None
    metadata = read_metadata(path, str(columns.pop("metadata", "{}")).encode())
    if "prob" in columns:
        columns["probs"] = columns.pop("prob")
    return Predictions(
        **columns, subgroups=subgroups, metadata=metadata, source=str(path), notes=tuple(notes)
    )


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    if not arrays:
        raise InputError(
            "is a zip archive without arrays, such as an Excel file",
            file=path,
            hint="Write a CSV with image_id, label, prob.",
        )
    entries = {info.filename.removesuffix(".npy"): info for info in arrays}
    if any(sample_number(name) is not None for name in entries):
        raise InputError(
            "holds one array per sample", file=path, hint="Store them as one (N, S) array named 'probs'."
        )
    check_columns(path, [info.filename.removesuffix(".npy") for info in arrays])
    wanted = [name for name in ("metadata", *KNOWN) if name in entries]
    return {name: read_member(path, archive, entries[name], name) for name in wanted}


def _further(path: Path, archive: zipfile.ZipFile, n: int) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """The other arrays of N values, and notes on those that cannot be kept."""
    columns, notes = {}, []
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy").removeprefix(SUBGROUPS)
        if name in ("metadata", *KNOWN) or not info.filename.endswith(".npy"):
            continue
        try:
            columns[name] = read_member(path, archive, info, name, shape=(n,))
        except InputError as error:
            notes.append(f"the array '{name[:60]}' is left out: {error.problem}")
    kept, more = keep_further(columns, n)
    return kept, notes + more


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_member(
    path: Path,
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    name: str,
    shape: tuple[int, ...] | None = None,
) -> NDArray[Any]:
    """Read one array; what its header declares is checked before memory is asked for, and no object is unpickled.

    Args:
        path: The file, for messages.
        archive: The open archive.
        info: The member.
        name: The column, for messages.
        shape: The needed shape; None for any.

    Returns:
        The array.

    Raises:
        InputError: It is no plain array, has another shape, or its header declares more than the file holds.
    """
    with archive.open(info) as handle:
        try:
            declared, _, dtype = _HEADERS[np.lib.format.read_magic(handle)](handle)
        except (KeyError, ValueError):
            raise InputError("is not a plain array", file=path, column=name) from None
    if dtype.hasobject:
        raise InputError(
            "holds Python objects, which are never unpickled",
            file=path,
            column=name,
            hint="Save plain arrays of numbers and text.",
        )
    if shape is not None and declared != shape:
        raise InputError(f"has shape {declared}, needed is {shape}", file=path, column=name)
    if name != "metadata":
        check_size(path, declared[0] if declared else 1, math.prod(declared[1:]))
    if math.prod(declared) * dtype.itemsize > info.file_size:
        raise InputError(
            f"declares the shape {declared} and holds less", file=path, column=name, hint="Write it again."
        )
    if dtype.kind in "US" and dtype.itemsize > 4 * MAX_TEXT and name != "metadata":
        raise InputError(f"holds text of type {dtype}, wider than {MAX_TEXT:,}", file=path, column=name)
    try:
        with archive.open(info) as handle:
            return np.asarray(np.lib.format.read_array(handle, allow_pickle=False))
    except ValueError:
        raise InputError("is not a whole array", file=path, column=name, hint="Write it again.") from None


def npz_bytes(predictions: Predictions) -> bytes:
    """A compressed NPZ file of plain arrays; further columns stand in its folder `subgroups/`."""
    columns = {name: getattr(predictions, name) for name in ("image_id", "label", "probs", *OPTIONAL)}
    columns |= {f"{SUBGROUPS}{name}": values for name, values in predictions.subgroups.items()}
    columns["metadata"] = np.asarray(metadata_json(predictions.metadata, predictions.samples))
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:  # np.savez allows no array named "file"
        for name, values in columns.items():
            if values is not None:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as handle:
                    np.lib.format.write_array(handle, values, allow_pickle=False)
    return sink.getvalue()
