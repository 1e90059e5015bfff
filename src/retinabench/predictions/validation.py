"""The checks of a predictions file's columns: every message names the first bad row, the column and the hint."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError


class Check:
    """Checks of columns; each raises `InputError` at the first bad row."""

    def __init__(self, source: str | None) -> None:
        self.source = source

    def fail(
        self, column: str, row: int | np.intp | None, problem: str, hint: str | None = None
    ) -> InputError:
        """Return the error that names file, row and column.

        Args:
            column: Name of the column.
            row: Row from 0; None where no row is to blame.
            problem: What is wrong.
            hint: How to mend it.

        Returns:
            The error, to be raised.
        """
        number = None if row is None else int(row) + 1
        return InputError(problem, file=self.source, row=number, column=column, hint=hint)

    def array(self, column: str, values: ArrayLike) -> NDArray[Any]:
        """`values` as an array; lists of several lengths and masked rows are refused, not guessed at."""
        if isinstance(values, np.ma.MaskedArray) and (hidden := np.argwhere(np.ma.getmaskarray(values))).size:
            raise self.fail(column, hidden[0][0], "is masked", "Fill it, or drop the row.")
        try:
            return np.asarray(values)
        except (TypeError, ValueError):
            first = next((row for row in _lengths(values) if row[1] != _lengths(values)[0][1]), None)
            if first is None:
                raise self.fail(column, None, "cannot be made an array") from None
            raise self.fail(
                column,
                first[0],
                f"holds {first[1]} values where row 1 holds {_lengths(values)[0][1]}",
                "Give every image equally many.",
            ) from None

    def length(self, column: str, values: ArrayLike, n: int) -> NDArray[Any]:
        """Return values as an array of n rows.

        Args:
            column: Name of the column.
            values: Its values.
            n: Number of rows.

        Returns:
            The array, with n rows.
        """
        array = self.array(column, values)
        if array.ndim == 0 or len(array) != n:
            found = "a single value" if array.ndim == 0 else f"{len(array)} rows"
            raise self.fail(column, None, f"has {found} where image_id has {n}")
        return array

    def text(self, column: str, values: ArrayLike) -> NDArray[np.str_]:
        """(N,) text, no cell empty, missing or broken over lines."""
        array = self.array(column, values)
        if array.ndim != 1:
            raise self.fail(column, None, f"has shape {array.shape}, needed is (N,)")
        if array.dtype.kind == "f" and np.isnan(array).any():
            raise self.fail(column, np.flatnonzero(np.isnan(array))[0], "is missing", "Name it.")
        try:
            if array.dtype.kind == "O":
                array = np.asarray(
                    [self.word(column, row, value) for row, value in enumerate(array)], np.str_
                )
            array = np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array.astype(np.str_)
        except UnicodeDecodeError:
            raise self.fail(column, None, "holds bytes that are not UTF-8 text") from None
        broken = np.flatnonzero((np.char.find(array, "\n") >= 0) | (np.char.find(array, "\r") >= 0))
        if broken.size:
            raise self.fail(column, broken[0], "holds a line break", "Is a quotation mark missing?")
        if (empty := np.flatnonzero(array == "")).size:
            raise self.fail(column, empty[0], "is empty", "Give every row a value or leave the column out.")
        return array

    def word(self, column: str, row: int, value: Any) -> str:
        """Return one cell of an object array as text; a missing one must not become a patient named 'nan'.

        Args:
            column: Name of the column.
            row: Row from 0.
            value: The cell.

        Returns:
            The text.
        """
        if value is None or value != value or str(value) == "<NA>":
            raise self.fail(column, row, "is missing", "Name it, or leave the column out.")
        return value.decode("utf-8") if isinstance(value, bytes) else str(value)

    def unique(self, column: str, values: NDArray[np.str_]) -> None:
        """Refuse an id that stands twice."""
        order = np.argsort(values, kind="stable")
        twice = np.flatnonzero(values[order][1:] == values[order][:-1])
        if twice.size:
            first, second = sorted((int(order[twice[0]]), int(order[twice[0] + 1])))
            raise self.fail(
                column,
                second,
                f"repeats '{values[first][:60]}' of row {first + 1}",
                "Every image may occur once; average its predictions or name its views apart.",
            )

    def finite(
        self, column: str, values: NDArray[Any], dimensions: tuple[int, ...] = (1,)
    ) -> NDArray[np.float64]:
        """Return values as finite float64 numbers.

        Args:
            column: Name of the column.
            values: Its values.
            dimensions: The allowed numbers of dimensions.

        Returns:
            The numbers.
        """
        if values.ndim not in dimensions:
            raise self.fail(column, None, f"has shape {values.shape}", _SHAPES[dimensions])
        if values.dtype.kind not in "biufOUS":
            raise self.fail(column, None, f"has type {values.dtype}, needed are numbers")
        try:
            numbers = values.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            raise self.fail(column, None, "holds values that are not numbers") from None
        bad = np.argwhere(~np.isfinite(numbers))
        if bad.size:
            rows = len(np.unique(bad[:, 0]))
            more = f" (the first of {rows} such rows)" if rows > 1 else ""
            raise self.fail(
                _sample(column, numbers, bad[0]),
                bad[0][0],
                f"is {numbers[tuple(bad[0])]}{more}",
                "Every value must be a finite number.",
            )
        return numbers

    def labels(self, values: NDArray[Any]) -> NDArray[np.int8]:
        """(N,) zeros and ones."""
        numbers = self.finite("label", values)
        bad = np.flatnonzero((numbers != 0) & (numbers != 1))
        if bad.size:
            grades = np.isin(numbers, np.arange(5)).all()
            hint = (
                (
                    "These look like severity grades: name the column 'grade' and add 'label' = 1 where "
                    "grade >= 2, else 0."
                )
                if grades
                else "A label is 0 (not referable) or 1 (referable)."
            )
            raise self.fail("label", bad[0], f"is {numbers[bad[0]]:g}, not 0 or 1", hint)
        return numbers.astype(np.int8)

    def grades(self, values: NDArray[Any]) -> NDArray[np.int8]:
        """(N,) whole numbers 0 to 4."""
        numbers = self.finite("grade", values)
        bad = np.flatnonzero(~np.isin(numbers, np.arange(5)))
        if bad.size:
            raise self.fail(
                "grade",
                bad[0],
                f"is {numbers[bad[0]]:g}, not one of 0, 1, 2, 3, 4",
                "Use the international scale, or leave the column out.",
            )
        return numbers.astype(np.int8)

    def probabilities(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """(N, S) in [0, 1]; what lies outside is guessed at: logits, percentages, rounding."""
        probs = self.finite("probs", values, (1, 2))
        if probs.ndim == 1:
            probs = probs[:, None]
        if probs.shape[1] == 0:
            raise self.fail("probs", None, f"has shape {probs.shape}", _SHAPES[1, 2])
        bad = np.argwhere((probs < 0) | (probs > 1))
        if bad.size:
            if probs.min() < -1e-5:
                hint = "These look like logits: apply the sigmoid, p = 1 / (1 + exp(-logit))."
            elif 1.5 < probs.max() <= 100:
                hint = "These look like percentages: divide by 100."
            elif probs.max() < 1 + 1e-5:
                hint = "This looks like rounding in single precision: clip to [0, 1]."
            else:
                hint = "A probability lies between 0 and 1."
            value = float(probs[tuple(bad[0])])
            shown = f"{value:g}" if not 0 <= float(f"{value:g}") <= 1 else repr(value)
            raise self.fail(_sample("probs", probs, bad[0]), bad[0][0], f"is {shown}, outside [0, 1]", hint)
        return probs

    def one_of(
        self, column: str, values: ArrayLike | None, allowed: tuple[str, ...], default: str, n: int
    ) -> NDArray[np.str_]:
        """Return text out of a few allowed values.

        Args:
            column: Name of the column.
            values: Its values; None for `default` throughout.
            allowed: The allowed values.
            default: The value of a missing column.
            n: Number of rows.

        Returns:
            (N,) text.
        """
        if values is None:
            return np.full(n, default)
        text = self.text(column, self.length(column, values, n))
        bad = np.flatnonzero(~np.isin(text, allowed))
        if bad.size:
            raise self.fail(column, bad[0], f"is '{text[bad[0]][:60]}'", f"Valid: {', '.join(allowed)}.")
        return text


_SHAPES = {
    (1,): "Needed is (N,): one number per image.",
    (1, 2): "Needed is (N,) or (N, S): images by samples.",
}


def _lengths(values: Any) -> list[tuple[int, int]]:
    """(row, number of values) of every row of a ragged list; a single value counts as one."""
    return [(row, len(cell) if hasattr(cell, "__len__") else 1) for row, cell in enumerate(values)]


def _sample(column: str, values: NDArray[np.float64], place: NDArray[np.intp]) -> str:
    """Name the column as a file would: `prob` for one value a row, `prob_j` for sample j of several."""
    if column != "probs":
        return column
    return "prob" if values.ndim == 1 or values.shape[1] == 1 else f"prob_{place[1]}"
