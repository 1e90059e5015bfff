"""The predictions file: the interface between models (left of it) and scores (right of it).

One row per image. Any framework that can write a table can enter here; `formats.py` reads and writes Parquet,
CSV and NPZ. The columns:

| column        | type                     | meaning                                                               |
|---------------|--------------------------|-----------------------------------------------------------------------|
| `image_id`    | text, unique             | which picture                                                         |
| `label`       | 0 or 1                   | 1 = referable (grade >= 2), as the expert reported it                 |
| `prob`        | number in [0, 1]         | P(referable), **or**                                                  |
| `probs`       | S numbers in [0, 1]      | one per posterior sample; in CSV `prob_0 … prob_{S-1}`                |
| `grade`       | 0 … 4, optional          | severity on the international scale                                   |
| `patient_id`  | text, optional           | intervals are clustered by it; missing: every image is its own cluster |
| `domain`      | optional                 | `in_domain` (default) or `shifted`                                    |
| `split`       | optional                 | `validation` or `test` (default)                                      |
| `uncertainty` | finite number, optional  | a score of your own: the largest is referred first                    |

File metadata (Parquet and NPZ): schema version, method, task, model, seed, samples, members, config hash, package
version. With K members the S samples are stored member by member: member k holds samples k*S/K … (k+1)*S/K - 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.errors import InputError

SCHEMA = "retinabench.predictions/1"
DOMAINS = ("in_domain", "shifted")
SPLITS = ("validation", "test")
OPTIONAL = ("grade", "patient_id", "domain", "split", "uncertainty")


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of N images by S posterior samples, checked when made.

    Arguments
    ---------
    image_id: (N,) text, unique.
    label: (N,) 0 or 1.
    probs: (N,) or (N, S), P(referable) in [0, 1]; kept as (N, S) float64.
    grade: (N,) 0 … 4. patient_id: (N,) text. domain: (N,) of `DOMAINS`. split: (N,) of `SPLITS`.
    uncertainty: (N,) finite numbers, the largest is referred first.
    metadata: what the file says of its origin (method, model, seed, members …).
    source: the file it came from, for error messages.

    Raises `InputError` that names the first offending row and column.
    """

    image_id: NDArray[np.str_]
    label: NDArray[np.int8]
    probs: NDArray[np.float64]
    grade: NDArray[np.int8] | None = None
    patient_id: NDArray[np.str_] | None = None
    domain: NDArray[np.str_] = None  # type: ignore[assignment]  # filled below, never None afterwards
    split: NDArray[np.str_] = None  # type: ignore[assignment]
    uncertainty: NDArray[np.float64] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check = _Check(self.source)
        ids = check.text("image_id", self.image_id)
        if ids.size == 0:
            raise InputError("holds no rows", file=self.source, cure="Write one row per image.")
        check.unique("image_id", ids)
        n = len(ids)
        columns: dict[str, Any] = {
            "image_id": ids,
            "label": check.labels(check.length("label", self.label, n)),
            "probs": check.probabilities(check.length("probs", self.probs, n)),
            "domain": check.one_of("domain", self.domain, DOMAINS, "in_domain", n),
            "split": check.one_of("split", self.split, SPLITS, "test", n),
        }
        if self.grade is not None:
            columns["grade"] = check.grades(check.length("grade", self.grade, n))
        if self.patient_id is not None:
            columns["patient_id"] = check.text("patient_id", check.length("patient_id", self.patient_id, n))
        if self.uncertainty is not None:
            columns["uncertainty"] = check.finite(
                "uncertainty", check.length("uncertainty", self.uncertainty, n)
            )
        members = self.metadata.get("members", 1)
        whole = isinstance(members, (int, np.integer)) and members >= 1
        if not whole or columns["probs"].shape[1] % members:
            raise InputError(
                f"{columns['probs'].shape[1]} samples cannot be shared by {members!r} members",
                file=self.source,
                cure="Store the samples member by member, equally many each.",
            )
        for name, values in columns.items():
            object.__setattr__(self, name, values)
        object.__setattr__(self, "metadata", dict(self.metadata))

    def __len__(self) -> int:
        return len(self.image_id)

    @property
    def prob(self) -> NDArray[np.float64]:
        """(N,) predictive mean over the samples, P(referable)."""
        return np.asarray(self.probs.mean(axis=1))

    @property
    def samples(self) -> int:
        """S, posterior samples per image over all members."""
        return int(self.probs.shape[1])

    def select(self, *, domain: str | None = None, split: str | None = None) -> Predictions | None:
        """Return the rows of one domain and one split, or None where there are none."""
        keep = np.ones(len(self), bool)
        if domain is not None:
            keep &= self.domain == domain
        if split is not None:
            keep &= self.split == split
        return self.take(np.flatnonzero(keep)) if keep.any() else None

    def take(self, rows: NDArray[np.intp] | Sequence[int]) -> Predictions:
        """Return the given rows, in the given order."""
        if len(self) == len(rows) and np.array_equal(rows, np.arange(len(self))):
            return self
        columns = ("image_id", "label", "probs", *OPTIONAL)
        present = {name: getattr(self, name) for name in columns if getattr(self, name) is not None}
        return replace(self, **{name: values[rows] for name, values in present.items()})


class _Check:
    """Checks of columns; each raises `InputError` at the first bad row."""

    def __init__(self, source: str | None) -> None:
        self.source = source

    def fail(
        self, column: str, row: int | np.intp | None, problem: str, cure: str | None = None
    ) -> InputError:
        number = None if row is None else int(row) + 1
        return InputError(problem, file=self.source, row=number, column=column, cure=cure)

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
        array = self.array(column, values)
        if array.ndim == 0 or len(array) != n:
            found = "a single value" if array.ndim == 0 else f"{len(array)} rows"
            raise self.fail(column, None, f"has {found} where image_id has {n}")
        return array

    def text(self, column: str, values: ArrayLike) -> NDArray[np.str_]:
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
        """One cell of an object array as text; a missing one must not become a patient named 'nan'."""
        if value is None or value != value or str(value) == "<NA>":
            raise self.fail(column, row, "is missing", "Name it, or leave the column out.")
        return value.decode("utf-8") if isinstance(value, bytes) else str(value)

    def unique(self, column: str, values: NDArray[np.str_]) -> None:
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
        numbers = self.finite("label", values)
        bad = np.flatnonzero((numbers != 0) & (numbers != 1))
        if bad.size:
            grades = np.isin(numbers, np.arange(5)).all()
            cure = (
                (
                    "These look like severity grades: name the column 'grade' and add 'label' = 1 where "
                    "grade >= 2, else 0."
                )
                if grades
                else "A label is 0 (not referable) or 1 (referable)."
            )
            raise self.fail("label", bad[0], f"is {numbers[bad[0]]:g}, not 0 or 1", cure)
        return numbers.astype(np.int8)

    def grades(self, values: NDArray[Any]) -> NDArray[np.int8]:
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
        probs = self.finite("probs", values, (1, 2))
        if probs.ndim == 1:
            probs = probs[:, None]
        if probs.shape[1] == 0:
            raise self.fail("probs", None, f"has shape {probs.shape}", _SHAPES[1, 2])
        bad = np.argwhere((probs < 0) | (probs > 1))
        if bad.size:
            if probs.min() < -1e-5:
                cure = "These look like logits: apply the sigmoid, p = 1 / (1 + exp(-logit))."
            elif 1.5 < probs.max() <= 100:
                cure = "These look like percentages: divide by 100."
            elif probs.max() < 1 + 1e-5:
                cure = "This looks like rounding in single precision: clip to [0, 1]."
            else:
                cure = "A probability lies between 0 and 1."
            value = float(probs[tuple(bad[0])])
            shown = f"{value:g}" if not 0 <= float(f"{value:g}") <= 1 else repr(value)
            raise self.fail(_sample("probs", probs, bad[0]), bad[0][0], f"is {shown}, outside [0, 1]", cure)
        return probs

    def one_of(
        self, column: str, values: ArrayLike | None, allowed: tuple[str, ...], default: str, n: int
    ) -> NDArray[np.str_]:
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
