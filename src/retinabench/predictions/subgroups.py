"""Further columns of a predictions file, kept as subgroups: camera, site, age, sex, quality, date and so on.

A column is text, "" where it is empty, or float64 numbers, NaN where it is empty. A CSV does not say which: a column whose
cells are all numbers is numbers, unless one begins with a needless 0, as codes do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.predictions.check import Check, code_points, plain
from retinabench.predictions.columns import Layout, is_known

MAX_COLUMNS = 100
MAX_NAME = 100  # characters of a column's name
MAX_CELL = 200  # characters of a cell
MAX_BYTES = 1 << 30  # of all further columns
_INDEX_NAMES = ("", "Unnamed: 0", "__index_level_0__")  # the row numbers that pandas writes
_MISSING_NUMBERS = ("NA", "N/A", "NaN", "nan", "NULL", "null", "None", "<NA>")
_NUMBER = r"^[-+]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][-+]?[0-9]{1,3})?$"
_CODE = r"^[-+]?0[0-9]"


def kept_places(layout: Layout) -> tuple[list[int], Layout]:
    """Return the places of the columns that are read, and what these are: not all of a table of features."""
    names = Counter(layout.names)
    further = [place for place, name in enumerate(layout.names) if not is_known(name)]
    left = further[MAX_COLUMNS:]
    if not left:
        return list(range(len(layout.names))), layout
    # A column is read by its own name, so one that stands twice is left out as well.
    gone = {*left, *(place for place in further if names[layout.names[place]] > 1)}
    places = [place for place in range(len(layout.names)) if place not in gone]
    note = f"{len(gone)} further columns are left out: only {MAX_COLUMNS} are kept"
    kept = tuple(layout.names[place] for place in places)
    return places, replace(layout, names=kept, notes=(*layout.notes, note))


def check_subgroups(
    check: Check, subgroups: Mapping[str, ArrayLike], n: int, reserved: Iterable[str]
) -> dict[str, NDArray[Any]]:
    """Return further columns as text or float64 numbers.

    Shapes: returns (N,).
    """
    if len(subgroups) > MAX_COLUMNS:
        raise check.fail("subgroups", None, f"holds {len(subgroups)} columns, more than {MAX_COLUMNS}")
    columns = {}
    for name, values in subgroups.items():
        if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or re.search(r"[\x00-\x1f\x7f]", name):
            raise check.fail(str(name)[:40], None, f"is no name of 1 to {MAX_NAME} characters")
        if name in reserved:
            raise check.fail(name, None, "cannot be a further column", "Pass it as the argument of its name.")
        columns[name] = _checked(check, name, check.length(name, values, n))
    size = sum(values.nbytes for values in columns.values())
    if size > MAX_BYTES:
        raise check.fail("subgroups", None, f"takes {size:,} bytes, more than {MAX_BYTES:,}")
    return columns


def _checked(check: Check, name: str, values: NDArray[Any]) -> NDArray[Any]:
    if values.ndim != 1:
        raise check.fail(name, None, f"has shape {values.shape}, needed is (N,)")
    kind = values.dtype.kind
    if kind in "iuf":
        numbers = values.astype(np.float64)
        if (infinite := np.flatnonzero(np.isinf(numbers))).size:
            raise check.fail(name, infinite[0], "is infinite", "Use NaN for a missing number.")
        return numbers
    if kind in "bMOS":
        try:
            column = pa.array(values.tolist() if kind in "OS" else values, from_pandas=True)
            return np.asarray(from_arrow(column.cast(pa.string()) if kind == "S" else column))
        except (pa.ArrowException, ValueError, TypeError, UnicodeError):
            raise check.fail(name, None, f"has type {values.dtype}, needed are numbers or text") from None
    if kind != "U":
        raise check.fail(name, None, f"has type {values.dtype}, needed are numbers or text")
    if values.dtype.itemsize > 4 * MAX_CELL and (widest := np.char.str_len(values)).max() > MAX_CELL:
        raise check.fail(name, widest.argmax(), f"has {widest.max():,} characters, more than {MAX_CELL}")
    return values


def tidied(columns: Mapping[str, NDArray[Any]]) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Write values without outer and invisible blanks: `Zeiss` with a blank behind it is no camera of its own.

    Shapes: `columns` (N,).
    """
    found, notes = dict(columns), []
    for name, values in columns.items():
        if values.dtype.kind != "U" or not (odd := np.flatnonzero(~_tidy(values))).size:
            continue
        words = pa.array(values[odd].tolist()).dictionary_encode()
        levels = words.dictionary.to_pylist()
        forms = [plain(level) for level in levels]
        changed = [
            f"{level[:40]!a} as {form[:40]!a}" if form else f"{level[:40]!a} as empty"
            for level, form in zip(levels, forms, strict=True)
            if level != form
        ]
        if changed:
            mended = np.asarray(forms, np.str_)[words.indices.to_numpy()]
            found[name] = values.astype(np.result_type(values.dtype, mended.dtype))
            found[name][odd] = mended
            more = f" and {len(changed) - 3:,} more" if len(changed) > 3 else ""
            notes.append(
                f"{name}: read {', '.join(changed[:3])}{more}: they differ by blanks or invisible characters"
            )
    return found, notes


def _tidy(text: NDArray[np.str_]) -> NDArray[np.bool_]:
    """(N,) whether a text is visible ASCII with single blanks inside, as most are; found without an object for each."""
    tidy = np.empty(len(text), bool)
    for start, points in code_points(text):
        blank, end = points == ord(" "), points == 0
        good = ((points - np.uint32(ord(" ")) <= ord("~") - ord(" ")) | end).all(axis=1)
        # A blank is followed by a letter: neither by a blank nor by the end, and it does not come first.
        behind = np.append((blank | end)[:, 1:], np.ones((len(points), 1), bool), axis=1)
        good &= ~(blank & behind).any(axis=1) & ~blank[:, :1].any(axis=1)
        tidy[start : start + len(points)] = good
    return tidy


def from_arrow(column: pa.Array, *, untyped: bool = False) -> NDArray[Any]:
    """Return an Arrow column as (N,) text or float64 numbers."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        if pa.types.is_string(kind.value_type):
            return _text(column)
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _numbers(column)
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        raise ValueError(f"has type {kind}")
    if pa.types.is_timestamp(kind):
        days = column.cast(pa.timestamp("s", kind.tz), safe=False)
        midnight = pa.compute.all(pa.compute.equal(days, pa.compute.floor_temporal(days, unit="day")))
        column = pa.compute.strftime(days, "%Y-%m-%d" if midnight.as_py() else "%Y-%m-%dT%H:%M:%S")
    words = column.cast(pa.string()).dictionary_encode()
    if untyped and (values := _as_numbers(words.dictionary)) is not None:
        return _spelled(words, values, np.nan)
    return _text(words)


def _numbers(column: pa.Array) -> NDArray[np.float64]:
    values = np.array(column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    if np.isinf(values).any():
        raise ValueError("holds an infinite number")
    return values


def _as_numbers(levels: pa.Array) -> NDArray[np.float64] | None:
    """The different cells as numbers, None where one is another word or a code."""
    trimmed = pa.compute.utf8_trim_whitespace(levels)
    words = pa.compute.replace_with_mask(
        trimmed, pa.compute.is_in(trimmed, pa.array([*_MISSING_NUMBERS, ""])), pa.scalar(None, pa.string())
    )
    if words.null_count == len(words):
        return None
    numbers = pa.compute.match_substring_regex(words, _NUMBER)
    codes = pa.compute.match_substring_regex(words, _CODE)
    if not pa.compute.all(numbers).as_py() or pa.compute.any(codes).as_py():
        return None
    values = np.array(pa.compute.replace_substring(words, ",", ".").cast(pa.float64()).to_numpy(False))
    return None if np.isinf(values).any() else values


def _text(words: pa.DictionaryArray) -> NDArray[np.str_]:
    levels = words.dictionary
    if len(levels):
        widest = pa.compute.max(pa.compute.utf8_length(levels)).as_py() or 0
        if widest > MAX_CELL:
            raise ValueError(f"has a cell of {widest:,} characters, more than {MAX_CELL}")
        if 4 * len(words) * widest > MAX_BYTES:
            raise ValueError(f"has a cell of {widest:,} characters, too long for {len(words):,} rows")
    if pa.compute.any(pa.compute.match_substring_regex(levels, r"[\r\n\x00]")).as_py():
        raise ValueError("has a cell with a line break or a zero byte; is a quotation mark missing?")
    return _spelled(words, np.asarray(levels.to_pylist(), np.str_), "")


def _spelled(words: pa.DictionaryArray, levels: NDArray[Any], missing: float | str) -> NDArray[Any]:
    """(N,) the level of each cell, or what stands for an empty one."""
    codes = words.indices.fill_null(len(levels)).to_numpy(zero_copy_only=False)
    return np.asarray(np.append(levels, missing)[codes])


def keep_further(
    columns: Mapping[str, pa.Array | NDArray[Any]], n: int, *, untyped: bool = False
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the further columns of a file that can be kept, and notes on the others."""
    kept: dict[str, NDArray[Any]] = {}
    left: dict[str, str] = {}
    size = 0
    for name, column in columns.items():
        if name in _INDEX_NAMES:
            continue
        try:
            values = from_arrow(column, untyped=untyped) if isinstance(column, pa.Array) else column
            (values,) = check_subgroups(Check(None), {name: values}, n, ()).values()
        except InputError as error:
            left[name] = error.problem
        except (ValueError, pa.ArrowException) as error:
            left[name] = str(error).partition("\n")[0]
        else:
            size += values.nbytes
            if len(kept) >= MAX_COLUMNS or size > MAX_BYTES:
                left[name] = f"more than {MAX_COLUMNS} further columns, or {MAX_BYTES:,} bytes of them"
                size -= values.nbytes
            else:
                kept[name] = values
    shown = list(left.items())[:5]
    notes = [f"the column '{name[:60]}' is left out: {why}" for name, why in shown]
    if len(left) > len(shown):
        notes.append(f"{len(left) - len(shown)} other further columns are left out as well")
    return kept, notes


def to_arrow(values: NDArray[Any]) -> pa.Array:
    """Return a further column for a file; its missing cells are empty."""
    if values.dtype.kind == "f":
        return pa.array(values, from_pandas=True)
    return pa.array(values, mask=values == "")
