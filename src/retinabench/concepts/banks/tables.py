"""Tables with ``image_id`` and one column per concept, from CSV or Parquet; the bank of such a table."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from retinabench.concepts.banks.bank import UNKNOWN, Bank
from retinabench.core.checksums import check
from retinabench.core.errors import InputError
from retinabench.core.untrusted.text import unquoted
from retinabench.predictions.arrow_columns import not_a_number
from retinabench.predictions.columns import check_count, check_size
from retinabench.predictions.formats.bounded_parquet import open_parquet, read_table
from retinabench.predictions.formats.csv_format import broken_csv, csv_header, unquote
from retinabench.predictions.validation import Check


def read_bank(path: str | Path, concepts: Sequence[str] | None = None) -> Bank:
    """Read the truth: image_id and one column of 0, 1 or nothing (unknown) per concept, or only the columns `concepts`.

    Raises `InputError` naming file, row, column and hint.
    """
    path = Path(path)
    image_id, names, values = read_concepts(path, concepts)
    wrong = np.argwhere((values != 0) & (values != 1) & ~np.isnan(values))
    if wrong.size:
        row, column = wrong[0]
        raise InputError(
            f"is {values[row, column]:g}, not 0, 1 or empty",
            file=path,
            row=int(row) + 1,
            column=names[column],
            hint="Name the columns that are concepts with --concepts.",
        )
    truth = np.where(np.isnan(values), UNKNOWN, values).astype(np.int8)
    return Bank(image_id, names, truth, source=str(path))


def read_concepts(
    path: Path, concepts: Sequence[str] | None
) -> tuple[NDArray[np.str_], list[str], NDArray[np.float64]]:
    """Read ``image_id`` and one numeric column per concept from a CSV or Parquet file.

    Args:
        path: The file; its format is told by its first bytes.
        concepts: Columns to read; None for all but ``image_id``.

    Returns:
        Image ids (n,), names of the concepts, and their values (n, c), NaN where a cell is empty.

    Raises:
        InputError: The file cannot be read, lacks a column or rows, or holds something that is not a finite number.
    """
    try:
        with open(check(path), "rb") as handle:
            parquet = handle.read(4) == b"PAR1"
        names = open_parquet(path).schema_arrow.names if parquet else _csv_columns(path)[2]
        check_count(path, names)
        wanted = _wanted(path, names, concepts)
        table = read_table(path, ["image_id", *wanted]) if parquet else _csv(path, wanted)
    except FileNotFoundError:
        raise InputError("does not exist", file=path) from None
    except IsADirectoryError:
        raise InputError("is a folder, needed is a CSV or Parquet file", file=path) from None
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {str(error).partition(chr(10))[0]}", file=path) from None
    check_size(path, table.num_rows, len(wanted))
    if table.num_rows == 0:
        raise InputError("has no rows", file=path, hint="Write one row per image.")
    image_id = Check(str(path)).text("image_id", np.asarray(table["image_id"].to_pylist(), object))
    values = np.empty((table.num_rows, len(wanted)))
    for place, name in enumerate(wanted):
        column = table[name].combine_chunks()
        try:
            values[:, place] = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise not_a_number(path, name, column) from None
    infinite = np.argwhere(np.isinf(values))
    if infinite.size:
        row, place = infinite[0]
        raise InputError("is infinite", file=path, row=int(row) + 1, column=wanted[place])
    return image_id, wanted, values


def _wanted(path: Path, names: list[str], concepts: Sequence[str] | None) -> list[str]:
    missing = [name for name in ("image_id", *(concepts or ())) if name not in names]
    if missing:
        has = ", ".join(name[:40] for name in names[:12]) + (", …" if len(names) > 12 else "")
        words = ", ".join(f"'{name}'" for name in missing)
        hint = f"Rename or add it; the file has: {has}"
        raise InputError(f"has no column {words}", file=path, hint=hint)
    wanted = list(concepts) if concepts else [name for name in names if name != "image_id"]
    for name in ("image_id", *wanted):
        if names.count(name) > 1:
            raise InputError("stands twice in the header", file=path, column=name)
    if not wanted:
        raise InputError("has no column beside image_id", file=path, hint="Add one per concept.")
    return wanted


def _csv_columns(path: Path) -> tuple[str, str, list[str]]:
    """Encoding, delimiter and column names."""
    encoding, header = csv_header(path)
    delimiter = max(",;\t", key=header.count)
    names = next(csv.reader([header], delimiter=delimiter, skipinitialspace=True))
    return encoding, delimiter, [unquoted(name.strip()) for name in names]


def _csv(path: Path, wanted: list[str]) -> pa.Table:
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
                    "image_id": pa.string(),
                    **{name: pa.string() if text else pa.float64() for name in wanted},
                },
                include_columns=["image_id", *wanted],
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
