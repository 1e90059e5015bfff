"""Reading and writing the predictions file as Parquet, CSV or NPZ.

The format is told by the first bytes, never by the file's name, and nothing is ever unpickled. A CSV may be
separated by commas, semicolons or tabs, carry a byte-order mark, and (between semicolons) use decimal commas.
"""

from __future__ import annotations

import io
import json
import math
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from retinabench.errors import InputError, nearest
from retinabench.predictions import OPTIONAL, SCHEMA, Predictions
from retinabench.store import atomic_write

MAX_ROWS = 20_000_000  # image ids of so many rows still fit an ordinary machine's memory
MAX_VALUES = 400_000_000  # 3.2 GB of float64 probabilities
MAX_CSV_BYTES = 2 * 1024**3
MAX_TEXT = 1000  # characters of one id
BLOCK = 1 << 24
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
    except MemoryError:
        raise InputError(
            "does not fit into memory", file=path, cure="Score a random part of it, drawn by patient."
        ) from None
    except UnicodeDecodeError:
        raise InputError("holds text that is not UTF-8", file=path, cure="Write it again as UTF-8.") from None
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"cannot be read: {str(error).splitlines()[0]}", file=path) from None


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
                cure="Is a quotation mark missing?",
            )
        return np.asarray(words.to_pylist(), dtype=np.str_)
    try:
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise _not_a_number(path, name, column) from None


def _not_a_number(path: Path, name: str, column: pa.Array) -> InputError:
    """Find the first value of `column` that is no number."""
    for row, value in enumerate(column, start=1):
        try:
            value.cast(pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            text = str(value.as_py())
            comma = re.fullmatch(r"\s*[-+]?\d*,\d+\s*", text)
            cure = "Write decimals with a point, or separate the columns by semicolons." if comma else None
            return InputError(f"is '{text[:40]}', not a number", file=path, row=row, column=name, cure=cure)
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
    encoding, header = _csv_header(path)
    delimiter = max(",;\t", key=header.count)
    names = [name.strip().strip('"').strip() for name in header.split(delimiter)]
    _columns(path, names)
    _csv_size(path, sum(_sample_number(name) is not None for name in names))

    def load(text: bool, decimal: str) -> pa.Table:
        known = [name for name in names if name in KNOWN or _sample_number(name) is not None]
        types = {name: pa.string() if text or name in TEXT else pa.float64() for name in known}
        return pa.csv.read_csv(
            path,
            # Only one thread can say in which row a line is broken.
            read_options=pa.csv.ReadOptions(
                encoding=encoding, column_names=names, skip_rows=1, use_threads=not text
            ),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
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


def _csv_header(path: Path) -> tuple[str, str]:
    """Encoding and first line of a CSV, however many sample columns it names."""
    with open(path, "rb") as handle:
        head = handle.read(BLOCK)
    wide = head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if head.startswith(b"\xff\xfe\x00\x00"):
        raise InputError("is UTF-32 text", file=path, cure="Save it as 'CSV UTF-8'.")
    if b"\x00" in head and not wide:
        raise InputError(
            "holds zero bytes: no CSV", file=path, cure="Write a CSV with image_id, label, prob."
        )
    encoding = "utf-16" if wide else "utf8"
    text = head.decode(encoding, errors="replace").lstrip("\ufeff")
    first = re.split(r"\r\n|\r|\n", text, maxsplit=1)[0]
    if not first.strip():
        raise InputError("has an empty first line", file=path, cure="Begin with image_id,label,prob.")
    return encoding, first


def _csv_size(path: Path, samples: int) -> None:
    """Refuse a file of too many rows before it is parsed, by its line ends; small files need no count."""
    size = path.stat().st_size
    if size < MAX_VALUES // 4:
        return
    with open(path, "rb") as handle:
        rows = sum(block.count(b"\n") for block in iter(lambda: handle.read(BLOCK), b""))
    _size(path, rows, max(1, samples))


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
        with zipfile.ZipFile(path) as archive:
            columns = _members(path, archive)
    except InputError:
        raise
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, RuntimeError, ValueError, IndexError):
        raise InputError("is not a whole NPZ file", file=path, cure="Write or copy it again.") from None
    metadata = _metadata(path, str(columns.pop("metadata", "{}")).encode())
    if "prob" in columns:
        columns["probs"] = columns.pop("prob")
    return Predictions(**columns, metadata=metadata, source=str(path))


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    arrays = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    if not arrays:
        raise InputError(
            "is a zip archive without arrays, such as an Excel file",
            file=path,
            cure="Write a CSV with image_id, label, prob.",
        )
    entries = {info.filename.removesuffix(".npy"): info for info in arrays}
    if any(_sample_number(name) is not None for name in entries):
        raise InputError(
            "holds one array per sample", file=path, cure="Store them as one (N, S) array named 'probs'."
        )
    _columns(path, [info.filename.removesuffix(".npy") for info in arrays])
    wanted = [name for name in ("metadata", *KNOWN) if name in entries]
    return {name: _member(path, archive, entries[name], name) for name in wanted}


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str) -> NDArray[Any]:
    """Read one array; what its header declares is checked before memory is asked for, and no object is unpickled."""
    with archive.open(info) as handle:
        try:
            shape, _, dtype = _HEADERS[np.lib.format.read_magic(handle)](handle)
        except (KeyError, ValueError):
            raise InputError("is not a plain array", file=path, column=name) from None
    if dtype.hasobject:
        raise InputError(
            "holds Python objects, which are never unpickled",
            file=path,
            column=name,
            cure="Save plain arrays of numbers and text.",
        )
    if name != "metadata":
        _size(path, shape[0] if shape else 1, math.prod(shape[1:]))
    if math.prod(shape) * dtype.itemsize > info.file_size:
        raise InputError(
            f"declares the shape {shape} and holds less", file=path, column=name, cure="Write it again."
        )
    if dtype.kind in "US" and dtype.itemsize > 4 * MAX_TEXT and name != "metadata":
        raise InputError(f"holds text of type {dtype}, wider than {MAX_TEXT:,}", file=path, column=name)
    try:
        with archive.open(info) as handle:
            return np.asarray(np.lib.format.read_array(handle, allow_pickle=False))
    except ValueError:
        raise InputError("is not a whole array", file=path, column=name, cure="Write it again.") from None


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
    match = re.fullmatch(r"prob_([0-9]{1,9})", name)
    return int(match[1]) if match else None


def _columns(path: Path, names: list[str]) -> None:
    """Check that the needed columns are there, once each, and name the likely misspelling where not."""
    for name, times in Counter(names).items():
        if times > 1 and (name in KNOWN or _sample_number(name) is not None):
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
            shown = [name[:40] for name in names if name not in KNOWN] or names
            close = nearest(needed, shown).partition("Valid: ")[0]
            more = ", …" if len(shown) > 12 else "."
            raise InputError(
                "is missing",
                file=path,
                column=needed,
                cure=f"{close}Rename or add it; the file has: {', '.join(shown[:12])}{more}",
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
        if not isinstance(content, dict):
            raise ValueError
    except (ValueError, RecursionError):
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
