"""Read label files: CSV in several dialects, with strict checks of its contents."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from retinabench.core.errors import InputError, nearest, one_edit
from retinabench.data.ingest.archives import Files
from retinabench.predictions.identities import indistinct

Row = tuple[int, dict[str, str]]  # its number from 1, and its cells without surrounding blanks


def read_table(files: Files, name: str, columns: Sequence[str]) -> list[Row]:
    """Read a CSV: comma, semicolon or tab; UTF-8 with or without a byte-order mark; blank rows are skipped."""
    where = files.where(name)
    try:
        text = files.read(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"is not UTF-8 text (byte {error.start + 1})", file=where, hint="Save it as CSV UTF-8."
        ) from None
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    table = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows: list[Row] = []
    try:
        header = [cell.strip() for cell in next(table, [])]
        _check_header(header, columns, where)
        for number, cells in enumerate(table, start=1):
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) > len(header) and any(cell.strip() for cell in cells[len(header) :]):
                raise InputError(
                    f"has {len(cells)} cells under {len(header)} columns", file=where, row=number
                )
            if any(header[len(cells) :]):  # a row may lack the cells of columns without a name
                raise InputError(
                    f"has {len(cells)} cells under {len(header)} columns",
                    file=where,
                    row=number,
                    hint="Is the file cut short?",
                )
            padded = [*cells, *[""] * (len(header) - len(cells))]
            if zero := next((key for key, cell in zip(header, padded, strict=False) if "\0" in cell), None):
                raise InputError("holds a zero byte", file=where, row=number, column=zero, hint="Remove it.")
            rows.append((number, {key: cell.strip() for key, cell in zip(header, padded, strict=False)}))
    except csv.Error as error:
        raise InputError(f"is no sound CSV ({error})", file=where, row=len(rows) + 1) from None
    if not rows:
        raise InputError("holds no rows below its header", file=where)
    return rows


def _check_header(header: Sequence[str], columns: Sequence[str], where: str) -> None:
    if not any(header):
        raise InputError("is empty", file=where)
    if (hidden := next((name for name in header if not name.isprintable()), None)) is not None:
        raise InputError(
            f"holds a control character in its header ({hidden[:40]!a})",
            file=where,
            hint="Save it as CSV UTF-8.",
        )
    if (odd := next((name for name in header if name.count('"') % 2), None)) is not None:
        raise InputError(
            f"holds half a pair of quotation marks in its header ({odd[:40]})",
            file=where,
            hint="Save it as CSV UTF-8.",
        )
    for column in columns:
        if header.count(column) > 1:
            raise InputError("appears twice in the header", file=where, column=column)
        if column not in header:
            raise InputError(
                "is missing", file=where, column=column, hint=nearest(column, filter(None, header))
            )


def grade_of(row: Row, column: str, where: str) -> int:
    """Return a grade 0 … 4; `2.0`, as spreadsheets write it, is 2."""
    number, cells = row
    whole = cells[column].removesuffix(".0")
    if whole not in {"0", "1", "2", "3", "4"}:
        raise InputError(
            f"is '{cells[column]}', not one of 0, 1, 2, 3, 4", file=where, row=number, column=column
        )
    return int(whole)


def word_of(row: Row, column: str, where: str, words: Sequence[str]) -> str:
    """Return a cell that must be one of `words`."""
    number, cells = row
    if cells[column] not in words:
        raise InputError(
            f"is '{cells[column]}'", file=where, row=number, column=column, hint=nearest(cells[column], words)
        )
    return cells[column]


def ids_of(rows: Sequence[Row], column: str, where: str) -> list[str]:
    """Return a column of names."""
    first: dict[str, int] = {}
    for number, cells in rows:
        if not cells[column]:
            raise InputError("is empty", file=where, row=number, column=column)
        if cells[column] in first:
            raise InputError(
                f"'{cells[column]}' is in row {first[cells[column]]} already",
                file=where,
                row=number,
                column=column,
                hint="Keep one row per image.",
            )
        first[cells[column]] = number
    check_distinct(rows, column, where)
    return list(first)


def check_distinct(rows: Sequence[Row], column: str, where: str) -> None:
    """Refuse names that differ only by blanks, invisible characters or the Unicode form of a letter."""
    if (pair := indistinct(cells[column] for _, cells in rows)) is not None:
        number = next(number for number, cells in rows if cells[column] == pair[1])
        raise InputError(
            f"is {pair[1][:60]!a}, which looks like {pair[0][:60]!a}",
            file=where,
            row=number,
            column=column,
            hint="Write one name in one way.",
        )


def refuse_typos(header: Iterable[str], columns: Sequence[str], where: str) -> None:
    """Refuse a column whose name is one letter away from an optional one that the table lacks."""
    names = list(header)
    for column in columns:
        for name in names if column not in names else ():
            if one_edit(name.lower(), column) or name.lower() == column:
                raise InputError(
                    f"is spelt almost like '{column}', which the table lacks",
                    file=where,
                    column=name,
                    hint=f"Rename it, or say --column {column}=NAME.",
                )


def needed(files: Files, basename: str, hint: str) -> str:
    """Return the name of a file that must be there."""
    name = files.find(basename)
    if name is None:
        raise InputError(f"holds no {PurePosixPath(basename).name}", file=files.root, hint=hint)
    return name
