"""The columns of an Arrow table, which Parquet, CSV and data frames pass through, as arrays."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.predictions.check import BLOCK, NOT_KNOWN
from retinabench.predictions.columns import (
    MAX_TEXT,
    TEXT,
    Layout,
    check_size,
    check_width,
    is_known,
    sample_number,
)
from retinabench.predictions.values import FileColumns, Reading, arguments_of


def arguments_of_arrow(
    source: str | None,
    table: pa.Table,
    layout: Layout,
    reading: Reading,
    metadata: Mapping[str, object],
    *,
    untyped: bool = False,
) -> dict[str, Any]:
    """Return the arguments of `Predictions` for an Arrow table."""
    columns: dict[str, Any] = {}
    further: dict[str, pa.Array] = {}
    times = Counter(layout.names)
    for name, chunked in zip(layout.names, table.columns, strict=True):
        if not is_known(name):
            column = combined(chunked)
            if column.null_count < len(column) and times[name] == 1:
                further[name] = column
        elif (values := _known(source, name, chunked, reading)) is not None:
            columns[name] = values
    samples = sorted((number, name) for name in columns if (number := sample_number(name)) is not None)
    if samples:
        columns["probs"] = np.stack([columns.pop(name) for _, name in samples], axis=1)
    elif "prob" in columns:
        columns["probs"] = columns.pop("prob")
    twice = [
        f"the column '{name[:60]}' is left out: it stands twice" for name in times if name and times[name] > 1
    ]
    layout = replace(layout, notes=(*layout.notes, *twice))
    found = FileColumns(columns, further, layout, metadata, source, untyped)
    return arguments_of(found, reading)


def _known(source: str | None, name: str, column: pa.ChunkedArray, reading: Reading) -> NDArray[Any] | None:
    """The values of a known column, as `_values` does; a type that Arrow cannot convert is refused in one line."""
    try:
        return _values(source, name, combined(unfolded(column, name, source)), reading)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise InputError(
            f"has type {column.type}, which cannot be read",
            file=source,
            column=name,
            hint="Store it as plain text or numbers.",
        ) from None


def _values(source: str | None, name: str, column: pa.Array, reading: Reading) -> NDArray[Any] | None:
    """The values of a known column; None where an optional one is empty throughout."""
    may_be_empty = ("grade", "patient_id", *(("label",) if reading.unlabelled else ()))
    if name in ("prob", "uncertainty") or sample_number(name) is not None:
        may_be_empty = (*may_be_empty, name)  # of an image that cannot be graded
    if column.null_count == len(column) and len(column):
        if (
            name == "image_id"
        ):  # an empty label may follow from the grade, and without any prob the reader refuses
            raise InputError("is empty in every row", file=source, column=name)
        return None
    if column.null_count and name not in may_be_empty:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]) + 1
        raise InputError("is empty", file=source, row=row, column=name, hint="Fill it, or drop the row.")
    return _lists(source, column) if name == "probs" else _flat(source, name, column)


def unfolded(column: pa.ChunkedArray, name: str, source: str | Path | None) -> pa.ChunkedArray:
    """Return a dictionary column as the text or numbers that it stands for, any other as it is."""
    if not pa.types.is_dictionary(column.type):
        return column
    kind = column.type.value_type
    longest = max((_longest(chunk.dictionary) for chunk in column.chunks), default=0)
    check_width(len(column), longest, name, source)
    return column.cast(kind)


def _longest(words: pa.Array) -> int:
    """Characters or bytes of the longest of some texts; 0 of numbers, whose arrays are narrow."""
    if pa.types.is_binary(words.type) or pa.types.is_large_binary(words.type):
        return int(pa.compute.max(pa.compute.binary_length(words)).as_py() or 0)
    if not is_text(words.type):
        return 0
    return int(pa.compute.max(pa.compute.utf8_length(words.cast(pa.large_string()))).as_py() or 0)


def is_text(kind: pa.DataType) -> bool:
    """Tell whether a type is text in any of Arrow's forms: pandas and polars write the large one."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def combined(column: pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(column.unify_dictionaries().chunks)


def _flat(source: str | None, name: str, column: pa.Array) -> NDArray[Any]:
    if name in TEXT:
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            raise InputError(f"has type {column.type}, needed is text", file=source, column=name)
        if pa.types.is_floating(column.type):  # whole numbers that a missing cell made floats
            return np.asarray(column.to_numpy(zero_copy_only=False))
        try:
            words = column.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InputError(f"has type {column.type}, needed is text", file=source, column=name) from None
        lengths = pa.compute.utf8_length(words.fill_null("")).to_numpy(zero_copy_only=False)
        if len(words) and lengths.max() > MAX_TEXT:  # an array of text is as wide as its longest cell
            raise InputError(
                f"has {lengths.max():,} characters, more than {MAX_TEXT:,}",
                file=source,
                row=int(lengths.argmax()) + 1,
                column=name,
                hint="Is a quotation mark missing?",
            )
        check_width(len(words), int(lengths.max()) if len(words) else 0, name, source)
        zero = np.flatnonzero(
            pa.compute.match_substring(words.fill_null(""), "\0").to_numpy(zero_copy_only=False)
        )
        if zero.size:  # NumPy drops them at the end of text, which would make two ids one
            raise InputError("holds a zero byte", file=source, row=int(zero[0]) + 1, column=name)
        return as_text(words.fill_null(""), int(lengths.max()) if len(words) else 0)
    if is_text(column.type):
        column = column.cast(pa.string())
    if name == "label" and (pa.types.is_boolean(column.type) or pa.types.is_string(column.type)):
        column = _without_words(column)
    if name == "grade" and pa.types.is_string(column.type):
        gone = pa.compute.is_in(pa.compute.utf8_lower(column), pa.array(NOT_KNOWN))
        column = pa.compute.replace_with_mask(column, gone, pa.scalar(None, pa.string()))
    try:
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise not_a_number(source, name, column) from None


def as_text(words: pa.Array, longest: int) -> NDArray[np.str_]:
    """Return (N,) texts without missing ones as an array that cannot be changed, without an object for each."""
    text = np.empty(len(words), f"=U{max(longest, 1)}")
    for start in range(0, len(words), BLOCK):
        part = words.slice(start, BLOCK)
        if longest and pa.compute.all(pa.compute.string_is_ascii(part)).as_py():
            padded = pa.compute.ascii_rpad(part, longest, "\0").buffers()[2]
            text[start : start + len(part)] = np.frombuffer(padded, f"S{longest}", len(part))
        else:
            text[start : start + len(part)] = part.to_pylist()
    text.flags.writeable = False
    return text


def _without_words(column: pa.Array) -> pa.Array:
    """Labels that are written true and false, in any case, as 1 and 0; others and empty cells as they are."""
    words = pa.compute.utf8_lower(column.cast(pa.string()))
    if not pa.compute.all(pa.compute.is_in(words.drop_null(), pa.array(["true", "false"]))).as_py():
        return column
    return pa.compute.equal(words, "true").cast(pa.float64())


def not_a_number(source: str | Path | None, name: str, column: pa.Array) -> InputError:
    """Return the error for the first value of a column that is not a number."""
    for row, value in enumerate(column, start=1):
        try:
            value.cast(pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            text = str(value.as_py())
            problem, hint = f"is '{text[:40]}', not a number", _number_instead(name, text)
            return InputError(problem, file=source, row=row, column=name, hint=hint)
    return InputError(f"has type {column.type}, needed are numbers", file=source, column=name)


def _number_instead(name: str, text: str) -> str | None:
    """What to write in place of a text that is not a number; None for a column that is not of `Predictions`."""
    if re.fullmatch(r"\s*[-+]?\d*,\d+\s*", text):
        return "Write decimals with a point, or separate the columns by semicolons."
    if name == "label":
        return "Labels are 0 (not referable) or 1 (referable)."
    if name == "grade":
        return "Grades are 0 (none), 1 (mild), 2 (moderate), 3 (severe) and 4 (proliferative)."
    if not is_known(name):
        return None
    if percent := re.fullmatch(r"\s*(\d{1,3}(?:[.,]\d{1,12})?)\s*%\s*", text):
        return f"Write {float(percent[1].replace(',', '.')) / 100:.12g} for it."
    if text.strip().lower() in NOT_KNOWN:
        return (
            "Write the number, drop the row, or leave the cell empty and write 0 in the column 'gradable' if the "
            "image cannot be graded."
        )
    return (
        f"Write a number{' from 0 to 1' if name != 'uncertainty' else ''} with a decimal point, such as 0.25."
    )


def _lists(source: str | None, column: pa.Array) -> NDArray[np.float64]:
    """(N, S) from a column of lists, all of one length."""
    if not (
        pa.types.is_list(column.type)
        or pa.types.is_large_list(column.type)
        or pa.types.is_fixed_size_list(column.type)
    ):
        raise InputError(
            "does not hold lists of numbers",
            file=source,
            column="probs",
            hint="Name a column of single numbers 'prob'.",
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
            file=source,
            row=int(odd[0]) + 1,
            column="probs",
            hint="Give every image equally many.",
        )
    check_size(source, len(lengths), int(lengths[0]))
    values = column.flatten()
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // int(lengths[0]) + 1
        raise InputError("holds an empty sample", file=source, row=row, column="probs")
    try:
        flat = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise InputError(
            f"has type {column.type}, needed are lists of numbers", file=source, column="probs"
        ) from None
    return np.asarray(flat).reshape(len(lengths), int(lengths[0]))
