"""The predictions file as NPZ: plain arrays only, checked by their headers before memory is asked for."""

from __future__ import annotations

import io
import lzma
import math
import struct
import tokenize
import warnings
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.predictions.columns import (
    KNOWN,
    MAX_BYTES,
    MAX_TEXT,
    MAX_TEXT_BYTES,
    OPTIONAL,
    check_columns,
    check_size,
    metadata_json,
    read_metadata,
    sample_number,
)
from retinabench.predictions.layouts import recognise
from retinabench.predictions.reading import FileColumns, Reading, arguments_of
from retinabench.predictions.subgroups import kept_places
from retinabench.predictions.table import Predictions

SUBGROUPS = "subgroups/"
DAMAGED_ARRAYS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError, ValueError, IndexError, TypeError,
    KeyError, AttributeError, OverflowError, SyntaxError, tokenize.TokenError,
)  # fmt: skip
"""What the standard library raises for archives and arrays that are damaged or forged; `OSError` as well."""
MAX_METADATA = 1 << 22  # characters
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""What NumPy writes. Python bounds the memory that these unfold to, but not that of bzip2 and LZMA."""


def read_npz(path: Path, reading: Reading) -> Predictions:
    """Read the plain arrays of an NPZ file; objects are never unpickled."""
    try:
        with zipfile.ZipFile(path) as archive:
            table = _table(path, archive, reading)
    except InputError:
        raise
    except DAMAGED_ARRAYS:
        raise InputError("is not a whole NPZ file", file=path, hint="Write or copy it again.") from None
    with table.layout.own_names():
        return Predictions(**arguments_of(table, reading))


def _table(path: Path, archive: zipfile.ZipFile, reading: Reading) -> FileColumns:
    arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    if not arrays:
        raise InputError(
            "is a zip archive without arrays, such as an Excel file",
            file=path,
            hint="Write a CSV with image_id, label, prob.",
        )
    names = [info.filename.removesuffix(".npy") for info in arrays]
    if any(sample_number(name) is not None for name in names):
        raise InputError(
            "holds one array per sample", file=path, hint="Store them as one (N, S) array named 'probs'."
        )
    layout = recognise(names, reading.columns, str(path))
    check_columns(path, layout.names, names)
    entries = dict(zip(layout.names, arrays, strict=True))
    _, layout = kept_places(layout)
    total = sum(entries[name].file_size for name in {*KNOWN, *layout.names} if name in entries)
    if total > MAX_BYTES + MAX_TEXT_BYTES:
        raise InputError(
            f"unfolds to {total:,} bytes, more than are read at once", file=path, hint="Write a part of it."
        )
    known = {
        name: read_member(path, archive, entries[name], name)
        for name in ("metadata", *KNOWN)
        if name in entries
    }
    metadata = read_metadata(path, str(known.pop("metadata", "{}")).encode())
    if "prob" in known:
        known["probs"] = known.pop("prob")
    further, notes = {}, []
    for name in layout.names:
        if name in ("metadata", *KNOWN):
            continue
        own = name.removeprefix(SUBGROUPS)
        try:
            further[own] = read_member(
                path,
                archive,
                entries[name],
                own,
                shape=np.shape(known["label" if "label" in known else "grade"]),
            )
        except InputError as error:
            notes.append(f"the array '{own[:60]}' is left out: {error.problem}")
    return FileColumns(known, further, replace(layout, notes=(*layout.notes, *notes)), metadata, str(path))


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_member(
    path: str | Path,
    archive: zipfile.ZipFile,
    info: zipfile.ZipInfo,
    name: str,
    shape: tuple[int, ...] | None = None,
) -> NDArray[Any]:
    """Read one array; what its header declares is checked before memory is asked for, and no object is unpickled."""
    if info.compress_type not in METHODS:
        raise InputError(
            "is compressed in a way that NumPy does not write",
            file=path,
            column=name,
            hint="Write it again with numpy.savez_compressed.",
        )
    with warnings.catch_warnings(), archive.open(info) as handle:
        warnings.simplefilter("ignore", UserWarning)  # of Python 2, which wrote other numbers into headers
        try:
            declared, _, dtype = _HEADERS[np.lib.format.read_magic(handle)](handle)
        except (KeyError, ValueError):
            raise InputError("is not a plain array", file=path, column=name) from None
    _check_declared(path, name, declared, dtype, shape, info.file_size)
    try:
        with warnings.catch_warnings(), archive.open(info) as handle:
            warnings.simplefilter("ignore", UserWarning)
            values = np.asarray(np.lib.format.read_array(handle, allow_pickle=False))
    except ValueError:
        raise InputError("is not a whole array", file=path, column=name, hint="Write it again.") from None
    if not _is_unicode(values):
        raise InputError(
            "holds text that is no valid Unicode", file=path, column=name, hint="Write it again."
        )
    return values


def _check_declared(
    path: str | Path,
    name: str,
    declared: tuple[int, ...],
    dtype: np.dtype[Any],
    shape: tuple[int, ...] | None,
    held: int,
) -> None:
    """Check what the header of an array declares: its kind, its shape, and that it fits the limits and the `held` bytes."""
    if dtype.hasobject:
        raise InputError(
            "holds Python objects, which are never unpickled",
            file=path,
            column=name,
            hint="Save plain arrays of numbers and text.",
        )
    if shape is not None and declared != shape:
        raise InputError(f"has shape {declared}, needed is {shape}", file=path, column=name)
    if declared:
        check_size(path, declared[0], math.prod(declared[1:]))
    size = math.prod(declared) * dtype.itemsize
    if size > (MAX_TEXT_BYTES if dtype.kind in "US" else MAX_BYTES):
        raise InputError(f"declares {size:,} bytes, more than are read at once", file=path, column=name)
    if size > held:
        raise InputError(
            f"declares the shape {declared} and holds less", file=path, column=name, hint="Write it again."
        )
    if dtype.kind in "US" and dtype.itemsize > 4 * (MAX_TEXT if declared else MAX_METADATA):
        raise InputError(f"holds text of type {dtype}, wider than {MAX_TEXT:,}", file=path, column=name)


def _is_unicode(values: NDArray[Any]) -> bool:
    """Whether every code point of text is a character: none is a surrogate, and none is above U+10FFFF, where Python crashes."""
    if values.dtype.kind != "U" or not values.dtype.itemsize:
        return True
    codes = (
        np.ascontiguousarray(values)
        .reshape(-1)
        .view(np.dtype(np.uint32).newbyteorder(values.dtype.byteorder))
    )
    return not ((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any()


def npz_bytes(predictions: Predictions) -> bytes:
    """A compressed NPZ file of plain arrays; further columns stand in its folder `subgroups/`."""
    columns = {name: getattr(predictions, name) for name in ("image_id", "label", "probs", *OPTIONAL)}
    columns |= {f"{SUBGROUPS}{name}": values for name, values in predictions.subgroups.items()}
    columns["metadata"] = np.asarray(metadata_json(predictions.metadata, predictions.samples))
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:  # np.savez allows no array named "file"
        for name, values in columns.items():
            if values is not None:
                if not _is_unicode(values):
                    raise UnicodeError(name)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as handle:
                    np.lib.format.write_array(handle, values, allow_pickle=False)
    return sink.getvalue()
