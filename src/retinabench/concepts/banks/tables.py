"""Tables with ``image_id`` and one column per concept, from CSV or Parquet; the bank of such a table."""

from __future__ import annotations

import contextlib
import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import UNKNOWN, Bank
from retinabench.core.errors import InputError
from retinabench.core.files import check
from retinabench.core.untrusted import unquoted
from retinabench.predictions.arrow_columns import as_text, combined, not_a_number
from retinabench.predictions.check import Check
from retinabench.predictions.columns import check_count, check_size
from retinabench.predictions.formats.bounded_parquet import open_parquet, read_table
from retinabench.predictions.formats.csv_format import broken_csv, csv_header, unquote

PATIENT = "patient_id"
COLUMNS = 8  # of a Parquet file that are in memory at a time, beside the values


def read_bank(path: str | Path, concepts: Sequence[str] | None = None) -> Bank:
    """Read the truth: image_id and one column of 0, 1 or nothing (unknown) per concept, or only the columns `concepts`.

    A column patient_id, if there is one, says which samples belong together.

    Raises `InputError` naming file, row, column and hint.
    """
    path = Path(path)

    def truth_of(name: str, values: NDArray[Any]) -> NDArray[np.int8]:
        if values.dtype.kind == "i" and 0 <= values.min() <= values.max() <= 1:
            return values.astype(np.int8, copy=False)
        unknown = np.isnan(values)
        wrong = (values != 0) & (values != 1) & ~unknown
        if wrong.any():
            row = int(wrong.argmax())
            raise InputError(
                f"is {values[row]:g}, not 0, 1 or empty",
                file=path,
                row=row + 1,
                column=name,
                hint="Name the columns that are concepts with --concepts.",
            )
        truth = np.full(len(values), UNKNOWN, np.int8)
        np.copyto(truth, values, casting="unsafe", where=~unknown)
        return truth

    image_id, names, truth = read_concepts(path, concepts, truth_of, np.int8)
    return Bank(image_id, names, truth, source=str(path), patient=read_patients(path))


def read_patients(path: Path) -> NDArray[np.str_] | None:
    """Return the column ``patient_id`` of a table of truth, (n,) text; None where it has none."""
    with _explained(path):
        parquet, names = _columns(path)
        if PATIENT not in names:
            return None
        if names.count(PATIENT) > 1:
            raise InputError("stands twice in the header", file=path, column=PATIENT)
        table = read_table(path, [PATIENT]) if parquet else _csv(path, [], PATIENT)
    return Check(str(path)).text(PATIENT, _text(table[PATIENT]))


def _unchanged(name: str, values: NDArray[Any]) -> NDArray[Any]:
    return values


def column_names(path: str | Path) -> list[str]:
    """Return the names of the columns of a CSV or Parquet file; raises `InputError` where it cannot be read."""
    path = Path(path)
    with _explained(path):
        return _columns(path)[1]


def read_concepts(
    path: Path,
    concepts: Sequence[str] | None,
    convert: Callable[[str, NDArray[Any]], NDArray[Any]] = _unchanged,
    dtype: type[np.generic] | None = None,
) -> tuple[NDArray[np.str_], list[str], NDArray[Any]]:
    """Read ``image_id`` and one numeric column per concept from a CSV or Parquet file."""
    with _explained(path):
        parquet, names = _columns(path)
        wanted = _wanted(path, names, concepts)
        table = None if parquet else _csv(path, wanted)
        ids = read_table(path, ["image_id"])["image_id"] if table is None else table["image_id"]
    check_size(path, len(ids), len(wanted))
    if len(ids) == 0:
        raise InputError("has no rows", file=path, hint="Write one row per image.")
    image_id = Check(str(path)).text("image_id", _text(ids))
    # Columns are written, and most often read, as a whole.
    values = np.empty((len(wanted), len(ids)), dtype or _type(path if parquet else None, wanted)).T
    for first in range(0, len(wanted), COLUMNS):
        some = wanted[first : first + COLUMNS]
        try:
            part = read_table(path, some) if table is None else table
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"cannot be read: {str(error).partition(chr(10))[0]}", file=path) from None
        for place, name in enumerate(some, start=first):
            values[:, place] = convert(name, _numbers(path, name, part[name].combine_chunks()))
    return image_id, wanted, values


def _type(path: Path | None, wanted: Sequence[str]) -> type[np.floating]:
    """Return the narrowest type that holds the columns of a Parquet file as they are written."""
    single = path is not None and all(
        pa.types.is_float32(open_parquet(path).schema_arrow.field(name).type) for name in wanted
    )
    return np.float32 if single else np.float64


def _text(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return ids as an array of text, or of whatever they are."""
    whole = pa.types.is_string(column.type) and not column.null_count
    # NumPy drops zero bytes at the end of text; where there are any, they are refused as a column of objects.
    if not whole or pa.compute.any(pa.compute.match_substring(column, "\0")).as_py():
        return np.asarray(column.to_pylist(), object)
    return as_text(combined(column), int(pa.compute.max(pa.compute.utf8_length(column)).as_py() or 0))


def _numbers(path: Path, name: str, column: pa.Array) -> NDArray[Any]:
    as_they_are = pa.types.is_integer(column.type) or pa.types.is_float32(column.type)
    try:
        if not as_they_are or column.null_count:
            column = column.cast(pa.float64())
        values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise not_a_number(path, name, column) from None
    if values.dtype.kind == "f" and (infinite := np.isinf(values)).any():
        raise InputError("is infinite", file=path, row=int(infinite.argmax()) + 1, column=name)
    return values


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Say in one line why a file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise InputError("does not exist", file=path) from None
    except IsADirectoryError:
        raise InputError("is a folder, needed is a CSV or Parquet file", file=path) from None
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {str(error).partition(chr(10))[0]}", file=path) from None


def _columns(path: Path) -> tuple[bool, list[str]]:
    """Whether a file is Parquet, which its first bytes tell, and the names of its columns."""
    with open(check(path), "rb") as handle:
        parquet = handle.read(4) == b"PAR1"
    names = open_parquet(path).schema_arrow.names if parquet else _csv_columns(path)[2]
    check_count(path, names)
    return parquet, names


def _wanted(path: Path, names: list[str], concepts: Sequence[str] | None) -> list[str]:
    missing = [name for name in ("image_id", *(concepts or ())) if name not in names]
    if missing:
        has = ", ".join(name[:40] for name in names[:12]) + (", …" if len(names) > 12 else "")
        words = ", ".join(f"'{name}'" for name in missing)
        hint = f"Rename or add it; the file has: {has}"
        raise InputError(f"has no column {words}", file=path, hint=hint)
    wanted = list(concepts) if concepts else [name for name in names if name not in ("image_id", PATIENT)]
    for name in ("image_id", *wanted):
        if names.count(name) > 1:
            raise InputError("stands twice in the header", file=path, column=name)
        if wanted.count(name) > 1:
            raise InputError("is named twice as a concept", file=path, column=name, hint="Name it once.")
    if not wanted:
        raise InputError("has no column beside image_id", file=path, hint="Add one per concept.")
    return wanted


def _csv_columns(path: Path) -> tuple[str, str, list[str]]:
    """Encoding, delimiter and column names."""
    encoding, header = csv_header(path)
    delimiter = max(",;\t", key=header.count)
    names = next(csv.reader([header], delimiter=delimiter, skipinitialspace=True))
    return encoding, delimiter, [unquoted(name.strip()) for name in names]


def _csv(path: Path, wanted: list[str], name: str = "image_id") -> pa.Table:
    encoding, delimiter, names = _csv_columns(path)

    def load(text: bool, decimal: str) -> pa.Table:
        return pa.csv.read_csv(
            path,
            read_options=pa.csv.ReadOptions(
                encoding=encoding, column_names=names, skip_rows=1, use_threads=False
            ),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter),
            convert_options=pa.csv.ConvertOptions(
                column_types={
                    name: pa.string(),
                    **{one: pa.string() if text else pa.float64() for one in wanted},
                },
                include_columns=[name, *wanted],
                decimal_point=decimal,
                strings_can_be_null=True,
                null_values=["", "nan", "NaN"],
            ),
        )

    # A decimal comma, a word among the numbers or a broken line: a later try reads it, or tells which.
    for text, decimal in ((False, "."), *(((False, ","),) if delimiter != "," else ())):
        try:
            return unquote(load(text, decimal))
        except pa.ArrowInvalid:
            continue
    try:
        return load(True, ".")
    except pa.ArrowInvalid as error:
        raise broken_csv(path, str(error)) from None
