"""Values of the columns of a table, converted and checked; Parquet, CSV and data frames pass through Arrow."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax

from retinabench.core.errors import InputError
from retinabench.core.results import number_text
from retinabench.predictions import columns as table_columns
from retinabench.predictions.check import BLOCK, NOT_KNOWN, SHAPES, Check, is_missing, named_by_row, sample_column
from retinabench.predictions.columns import GRADES, LISTS, MAX_TEXT, SPLITS, Layout, check_width, from_arrow, is_known

REFERABLE_FROM = 2  # The lowest referable grade of the international scale.
SEVERE = 3  # The lowest severe one: severe non-proliferative (3) and proliferative (4) retinopathy.
UNKNOWN_GRADE = -1
FEW_ROWS = 5
"""Below so many rows, samples whose sum is nearly 1 may be chance: only the rounding of printed numbers is allowed."""

_ROUNDING = 0.03  # of the sum of printed probabilities
GRADABLE = "gradable"  # The column that says which images can be graded: 1 or 0, yes or no, true or false.
UNANSWERED = 0.5
"""Placeholder for the missing probability of an image that cannot be graded; no number is computed from it."""

_WORDS = {"0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}
_SPLIT_WORDS = {"val": "validation", "valid": "validation", "dev": "validation", "testing": "test"}
_TRAINING = ("train", "training")


def checked_labels(check: Check, values: NDArray[Any]) -> NDArray[np.int8]:
    numbers = check.finite("label", values)
    bad = np.flatnonzero((numbers != 0) & (numbers != 1))
    if bad.size:
        grades = np.isin(numbers, np.arange(5)).all()
        hint = "A label is 0 (not referable) or 1 (referable)."
        if grades:
            hint = (
                "These look like severity grades: name the column 'grade' (--column grade=NAME) and leave the "
                "label out, which is then 1 where grade >= 2."
            )
        elif np.isin(numbers, (-1, 1)).all():  # without any 0, -1 is the other class
            hint += " Write 0 for -1."
        elif np.isin(numbers, (-1, 0, 1)).all():
            hint += " Leave out the images whose label is -1, not certain."
        raise check.fail("label", bad[0], f"is {numbers[bad[0]]:g}, not 0 or 1", hint)
    return numbers.astype(np.int8)


def checked_grades(check: Check, values: NDArray[Any]) -> NDArray[np.int8]:
    """(N,) whole numbers 0 to 4, and `UNKNOWN_GRADE` where a cell is empty."""
    if values.dtype.kind in "fO":  # None and NaN are grades that are not known
        values = np.asarray([-1 if is_missing(value) else value for value in values.tolist()])
    numbers = check.finite("grade", values)
    bad = np.flatnonzero(~np.isin(numbers, np.arange(UNKNOWN_GRADE, 5)))
    if bad.size:
        hint = "Use the international scale, or leave the column out."
        raise check.fail("grade", bad[0], f"is {numbers[bad[0]]:g}, not one of 0, 1, 2, 3, 4", hint)
    return numbers.astype(np.int8)


def checked_folds(check: Check, values: NDArray[Any]) -> NDArray[np.int64]:
    numbers = check.finite("fold", values)
    bad = np.flatnonzero((numbers != np.rint(numbers)) | (numbers < 0) | (numbers >= 1e9))
    if bad.size:
        raise check.fail("fold", bad[0], f"is {numbers[bad[0]]:g}", "Folds are whole numbers from 0.")
    return numbers.astype(np.int64)


def check_agreement(check: Check, label: NDArray[np.int8], grade: NDArray[np.int8], lowest: int) -> None:
    graded = grade != UNKNOWN_GRADE
    wrong = np.flatnonzero(graded & (label != (grade >= lowest)))
    if not wrong.size:
        return
    row = wrong[0]
    fitting = [k for k in range(1, 5) if (label == (grade >= k))[graded].all()]
    hint = "Correct one of them, or say --referable-from label where a label also counts other findings."
    if fitting:
        hint = f"Every label is 1 where grade >= {fitting[0]}: say --referable-from {fitting[0]} if that is meant."
    problem = f"is {label[row]} where the grade is {grade[row]} ({wrong.size} such rows)"
    raise check.fail("label", row, f"{problem}, and images are referable from grade {lowest} on", hint)


def checked_probabilities(check: Check, values: NDArray[Any]) -> NDArray[np.float64]:
    """(N, S) in [0, 1]; what lies outside is guessed at: logits, percentages, rounding."""
    probs = check.finite("probs", values, (1, 2))
    if probs.ndim == 1:
        probs = probs[:, None]
    if probs.shape[1] == 0:
        raise check.fail("probs", None, f"has shape {probs.shape}", SHAPES[1, 2])
    bad = np.argwhere((probs < 0) | (probs > 1))
    if bad.size:
        value = float(probs[tuple(bad[0])])
        shown = f"{value:g}" if not 0 <= float(f"{value:g}") <= 1 else repr(value)
        problem = f"is {shown}, outside [0, 1]"
        raise check.fail(sample_column("probs", probs, bad[0]), bad[0][0], problem, _hint_on_range(probs))
    return probs


def refuse_classes(check: Check, probs: NDArray[np.float64]) -> None:
    """Refuse class probabilities, whose rows sum to 1, in the place of posterior samples (N, S).

    Samples of one probability sum to 1 in every row only where their mean is the same for all images. The tolerance
    is the rounding of printed numbers, or a twentieth of what the columns differ by: the samples of a model that says
    about 1/S of every image are not refused. A few rows that do not sum to 1 make no samples of the others.
    """
    n, columns = probs.shape
    if columns < 2:
        return
    off = np.abs(probs.sum(axis=1) - 1)
    if (off <= 0.03).mean() < 0.9:  # most rows do not sum to 1
        return
    far = np.abs(probs - 1 / columns).max(axis=1)
    every = False
    if (off <= 0.03).all() and np.ptp(probs) > 1e-6:
        digits = next((d for d in range(2, 7) if np.abs(probs - probs.round(d)).max() < 1e-9), None)
        printed = 1e-6 if digits is None else columns * 0.5 * 10.0**-digits + 1e-6
        columns_differ = 0.05 * float(far.max()) if n >= FEW_ROWS else 0.0
        every = bool((off <= max(printed, columns_differ)).all())
    telling = far > 1e-6  # a row of equal values says nothing
    most = (off <= np.minimum(0.03, 0.05 * far))[telling]
    if every or (len(most) >= FEW_ROWS and most.mean() >= 0.9):
        grades = " (five grades: --grades)" if columns == 5 else ""
        raise check.fail(
            "probs",
            None,
            f"has {columns} values per image that sum to 1: class probabilities (softmax), not posterior samples",
            f"Read them with --softmax{grades}, or Predictions.from_softmax; samples of P(referable) that do sum "
            "to 1 need metadata {'samples': " + f"{columns}" + "}.",
        )


def _hint_on_range(probs: NDArray[np.float64]) -> str:
    low, high = float(probs.min()), float(probs.max())
    whole = bool((probs == np.round(probs)).all())
    if low > -1e-5 and high < 1 + 1e-5:
        return "This looks like rounding in single precision: clip to [0, 1]."
    if low >= 0 and 10 <= high <= 100 and np.median(probs) > 1:
        return "These look like percentages: divide by 100."
    if low < -1e-5 and not whole and (low < -1 or high > 1):
        return "These look like logits: apply the sigmoid, p = 1 / (1 + exp(-logit)), or Predictions.from_logits."
    if whole and np.isin(probs, (-1, 0, 1)).all():
        return "-1 marks a finding that is not certain in some label files: is this a column of labels?"
    return "A probability lies between 0 and 1."


def referable_probability(check: Check, probs: ArrayLike, lowest: int) -> NDArray[np.float64]:
    """P(referable) as (N,) or (N, S), the sum of the classes from `lowest` on, of (N, C) or (N, S, C)."""
    values = check.finite("probs", check.array("probs", probs), (2, 3))
    classes = values.shape[-1]
    if not 0 < lowest < classes:
        raise check.fail("probs", None, f"has {classes} classes: none is below, or none from, class {lowest} on")
    sums = _sums_near_one(check, "probs", values)
    return np.asarray(np.clip(values[..., lowest:].sum(axis=-1) / sums, 0, 1))


def checked_grade_prob(check: Check, values: NDArray[Any]) -> NDArray[np.float64]:
    """(N, 5) probabilities of the grades, of (N, 5) or of S samples (N, S, 5); printed digits are divided by their sum."""
    probs = check.finite("grade_prob", values, (2, 3))
    if probs.shape[-1] != GRADES:
        raise check.fail("grade_prob", None, f"has shape {probs.shape}", "Needed is (N, 5): one number per grade.")
    _sums_near_one(check, "grade_prob", probs)
    probs = np.clip(probs, 0, 1)
    sums = probs.sum(axis=-1, keepdims=True)
    probs = np.where(np.abs(sums - 1) > 1e-9, probs / sums, probs)
    return probs if probs.ndim == 2 else probs.mean(axis=1)


def check_grade_prob(check: Check, probs: NDArray[np.float64], grade_prob: NDArray[np.float64], lowest: int) -> None:
    """Refuse grade probabilities (N, 5) whose referable ones do not sum to P(referable) (N,)."""
    above = 1 - np.cumsum(grade_prob, axis=1)  # column k: the sum from grade k + 1 on
    off = np.abs(above[:, :4] - probs[:, None]) > _ROUNDING
    if not (wrong := np.flatnonzero(off[:, lowest - 1])).size:
        return
    fitting = np.flatnonzero(~off.any(axis=0)) + 1
    hint = "Leave out one of them: they are not of one prediction."
    if fitting.size:
        hint = f"It is the sum from grade {fitting[0]} on: say --referable-from {fitting[0]}."
    row, said = wrong[0], f"P(referable) is {probs[wrong[0]]:.3g} ({wrong.size} such rows)"
    problem = f"sums to {above[row, lowest - 1]:.3g} from grade {lowest} on where {said}"
    raise check.fail("grade_prob", row, problem, hint)


def _sums_near_one(check: Check, column: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sums (N,) over the classes, which are 1 but for the rounding of printed numbers."""
    sums: NDArray[np.float64] = values.sum(axis=-1)
    outside = (values < -_ROUNDING) | (values > 1 + _ROUNDING)
    off = np.argwhere(outside.any(axis=-1) | (np.abs(sums - 1) > _ROUNDING))
    if off.size:
        place = tuple(off[0])
        logits = bool(outside.any() and np.ptp(sums) > 2 * _ROUNDING)
        hint = "These are no class probabilities: posterior samples of P(referable) need no softmax."
        if logits or column == "grade_prob":
            hint = "Are they logits? Use Predictions.from_logits." if logits else "Give the five of each image."
        raise check.fail(column, off[0][0], f"sums to {sums[place]:g} over the classes, not to 1", hint)
    return sums


def class_probabilities(check: Check, logits: ArrayLike) -> NDArray[np.float64]:
    """Return the softmax of logits over their last axis, or the sigmoid of a single logit as two classes."""
    values = check.finite("logits", check.array("logits", logits), (1, 2, 3))
    if values.ndim == 1:
        values = values[:, None]
    if values.shape[-1] == 1:
        return np.concatenate([expit(-values), expit(values)], axis=-1)
    return np.asarray(softmax(values, axis=-1))


def gradable_rows(check: Check, values: NDArray[Any] | None, n: int) -> NDArray[np.bool_]:
    found = np.ones(n, bool)
    if values is None:
        return found
    levels, place = np.unique(values, return_inverse=True)
    for k, level in enumerate(levels.tolist()):
        text = number_text(level) if isinstance(level, float) else str(level).strip().lower()
        rows = place == k
        if text not in _WORDS:
            shown = "empty" if text in ("", "nan") else f"'{level}'"
            row = int(np.flatnonzero(rows)[0])
            raise check.fail(GRADABLE, row, f"is {shown}, not 0 or 1", "1: the image can be graded.")
        found[rows] = _WORDS[text]
    return found


def fill_ungradable(
    check: Check, known: dict[str, NDArray[Any]], values: NDArray[Any] | None, *, classes: bool = False
) -> None:
    good = gradable_rows(check, values, len(known["probs"]))
    unanswered = 1 / known["probs"].shape[-1] if classes else UNANSWERED
    named = ((name, 0.0) for name in known if name == "uncertainty" or table_columns.uncertainty_name(name))
    for name, filled in (("probs", unanswered), ("grade_prob", 1 / GRADES), *named):
        column = known.get(name)
        if column is None or column.dtype.kind != "f" or not column.size or column.shape[:1] != good.shape:
            continue  # `Predictions` refuses other lengths
        gone = np.isnan(column).reshape(len(column), -1).any(axis=1)
        if (bad := np.flatnonzero(gone & good)).size:
            shown = "prob" if name == "probs" else name
            hint = "Fill it, or write 0 in the column 'gradable' where the image cannot be graded."
            raise check.fail(shown, bad[0], "is empty or nan", hint)
        if gone.any():
            known[name] = np.where(np.isnan(column), filled, column)


@dataclass(frozen=True)
class Reading:
    """What the user says of a table."""

    columns: Mapping[str, str] = field(default_factory=dict)  # name in `Predictions` -> the table's column
    softmax: bool = False  # whether the columns `prob_0 …` are the probabilities of classes, not posterior samples
    grades: bool = False  # whether these classes are the grades 0 to 4
    # the lowest referable grade, or "label" where the label counts whatever the grade; None for 2
    referable_from: int | Literal["label"] | None = None
    method: str | None = None  # name of the method; files of one name are its seeds
    seed: int | None = None  # seed of the model
    # whether labels may be empty, as those of new images are: they become 0, and the subgroup `LABELLED` is "no"
    unlabelled: bool = False

    def __post_init__(self) -> None:
        lowest = self.referable_from
        if lowest not in (None, "label") and lowest not in range(1, 5):
            raise InputError(f"referable from grade {lowest!r}", hint="Give 1, 2, 3, 4 or label.")

    @property
    def lowest(self) -> int:
        return self.referable_from if isinstance(self.referable_from, int) else REFERABLE_FROM


@dataclass(frozen=True, eq=False)
class FileColumns:
    """The columns of a file. known: those of `Predictions`, as arrays; further: the others, as NumPy or Arrow arrays."""

    known: Mapping[str, NDArray[Any]]
    further: Mapping[str, pa.Array | NDArray[Any]]
    layout: Layout
    metadata: Mapping[str, object] = field(default_factory=dict)
    source: str | None = None
    untyped: bool = False


def arguments_of(table: FileColumns, reading: Reading) -> dict[str, Any]:
    check = Check(table.source)
    known, further, notes = dict(table.known), dict(table.further), []
    gradable = _gradable(check, further.get(GRADABLE), untyped=table.untyped)
    if "probs" not in known:
        if gradable is None or gradable_rows(check, gradable, len(gradable)).any():
            raise check.fail("prob", None, "is empty in every row", "Write P(referable) of each image.")
        known["probs"] = np.full(len(gradable), np.nan)
    if known["probs"].ndim == 0:
        raise check.fail("probs", None, "is a single value", "Write P(referable) of each image.")
    n = len(known["probs"])
    fill_ungradable(check, known, gradable, classes=reading.softmax or reading.grades)
    probs = known["probs"]
    if "image_id" not in known:
        known["image_id"], note = named_by_row(n)
        notes.append(note)
    if reading.softmax or reading.grades:
        known["probs"] = referable_probability(check, probs, _lowest_class(check, probs, reading))
        if reading.grades and probs.shape[1] == GRADES:
            known["grade_prob"] = probs
        second = "softmax over two classes: P(referable) is the second column"
        kind = f"{probs.shape[1]} {'grades' if reading.grades else 'classes'}"
        several = f"softmax over {kind}: P(referable) is the sum from {reading.lowest} on"
        notes.append(second if probs.shape[1] == 2 else several)
    elif "prob" in table.layout.usual and np.isin(probs, (0, 1)).all():
        hint = "Export the probabilities; if these are meant, say so: --column prob=NAME."
        raise check.fail("prob", None, "holds only 0 and 1: decisions, not probabilities", hint)
    layout = table.layout
    if (name := _no_split(known, layout)) is not None:
        further[name] = known.pop("split")
        layout = layout.without("split")
    notes += _set_words(known)
    if reading.unlabelled:
        further[table_columns.LABELLED] = _set_some_labels(check, known, reading)
    else:
        notes += _set_label(check, known, reading)
    metadata = _origin(table.metadata, further, n, reading, notes)
    subgroups, left = table_columns.keep_further(further, n, untyped=table.untyped)
    said = layout.said()
    others = [name for name in subgroups if name != GRADABLE]
    if layout.usual and others:
        said.append(f"kept as subgroups: {', '.join(others[:12])}{', …' if len(others) > 12 else ''}")
    uncertainties = {own: known.pop(name) for name in list(known) if (own := table_columns.uncertainty_name(name))}
    return known | {
        "subgroups": subgroups,
        "uncertainties": uncertainties,
        "metadata": metadata,
        "source": table.source,
        "notes": (*said, *layout.notes, *notes, *left),
    }


def _gradable(check: Check, cells: pa.Array | NDArray[Any] | None, *, untyped: bool) -> NDArray[Any] | None:
    if not isinstance(cells, pa.Array):
        return cells
    try:
        return from_arrow(cells, untyped=untyped)
    except (ValueError, pa.ArrowException):
        raise check.fail(GRADABLE, None, f"has type {cells.type}, needed are 0 and 1") from None


def _lowest_class(check: Check, probs: NDArray[np.float64], reading: Reading) -> int:
    classes = 1 if probs.ndim == 1 else probs.shape[1]
    if classes < 2:
        raise check.fail("prob", None, "is a single column", "--softmax and --grades need one column per class.")
    if reading.grades and classes != 5:
        raise check.fail("probs", None, f"has {classes} columns, and there are five grades", "Use --softmax.")
    if classes == 2:
        return 1
    if reading.grades or isinstance(reading.referable_from, int):
        return reading.lowest
    hint = "Are they the grades 0 to 4? Add --grades." if classes == 5 else "Add --referable-from CLASS."
    raise check.fail("probs", None, f"has {classes} classes, and it is not said which are referable", hint)


def _no_split(known: Mapping[str, NDArray[Any]], layout: Layout) -> str | None:
    """The file's name of a column `set` or the like that holds no split; None where `split` is one, or absent."""
    if "split" not in known or "split" not in layout.usual or known["split"].dtype.kind != "U":
        return None
    words = {_split_word(word) for word in np.unique(known["split"]).tolist()}
    return None if words & {*SPLITS, *_TRAINING} else layout.original["split"]


def _split_word(word: str) -> str:
    word = word.strip().lower()
    return _SPLIT_WORDS.get(word, word)


def _domain_word(word: str) -> str:
    return word.strip().lower().replace("-", "_").replace(" ", "_")


def _set_words(known: dict[str, NDArray[Any]]) -> list[str]:
    """Write the values of `split` and `domain` in their usual form, and say so."""
    notes = []
    for column, allowed, usual in (("split", SPLITS, _split_word), ("domain", table_columns.DOMAINS, _domain_word)):
        if column not in known or known[column].dtype.kind != "U":
            continue
        levels, place = np.unique(known[column], return_inverse=True)
        # A word that is not known stays as the file has it, and is refused later, where the others are valid.
        words = [usual(word) if usual(word) in allowed else word for word in levels.tolist()]
        changed = [f"'{a}' as {b}" for a, b in zip(levels.tolist(), words, strict=True) if a != b]
        if changed:
            known[column] = np.asarray(words)[place]
            notes.append(f"{column}: read {', '.join(changed)}")
    return notes


def _set_label(check: Check, known: dict[str, NDArray[Any]], reading: Reading) -> list[str]:
    if "grade" not in known:
        if isinstance(reading.referable_from, int) and not reading.softmax:
            raise check.fail("grade", None, "is missing", "--referable-from needs the grades 0 to 4.")
        if "label" not in known:
            raise check.fail("label", None, "is empty in every row", "An image needs a label or a grade.")
        return []
    if "label" in known:
        return []
    grade = checked_grades(check, known["grade"])
    if (gone := np.flatnonzero(grade == UNKNOWN_GRADE)).size:
        raise check.fail("grade", gone[0], "is empty", "An image needs a label or a grade.")
    known["label"] = (grade >= reading.lowest).astype(np.int8)
    return [f"no label: it is 1 where grade >= {reading.lowest}"]


def _set_some_labels(check: Check, known: dict[str, NDArray[Any]], reading: Reading) -> NDArray[np.str_]:
    """Derive empty labels from the grade where it is known; the others become 0. (N,) whether the label is known."""
    label = np.asarray(known.get("label", np.full(len(known["probs"]), np.nan)), np.float64)
    if "grade" in known:
        grade = checked_grades(check, known["grade"])
        label = np.where(np.isnan(label) & (grade != UNKNOWN_GRADE), grade >= reading.lowest, label)
    known["label"] = np.nan_to_num(label)
    return np.where(np.isnan(label), "no", "yes")


def _origin(
    metadata: Mapping[str, object], further: dict[str, Any], n: int, reading: Reading, notes: list[str]
) -> dict[str, Any]:
    """The metadata with method, seed and `referable_from`, from what the user says, else from columns that hold one value."""
    stated: dict[str, Any] = {"method": reading.method, "seed": reading.seed}
    for name in stated:
        values = further.get(name)
        if values is None:
            continue
        try:
            cells = from_arrow(values, untyped=True) if isinstance(values, pa.Array) else np.asarray(values)
        except (ValueError, pa.ArrowException):
            continue  # no text: left out with the further columns, which says why
        if cells.ndim != 1 or len(levels := np.unique(cells)) != 1:
            continue
        if name == "seed" and not (cells.dtype.kind in "iuf" and float(levels[0]).is_integer()):
            continue
        del further[name]
        if stated[name] is None:
            stated[name] = int(levels[0]) if name == "seed" else str(levels[0])
            notes.append(f"{name} {stated[name]}, as the column '{name}' says")
    found = dict(metadata)
    if stated["method"] is not None:
        found |= {"method": stated["method"], "title": stated["method"]}
        found.pop("setting", None)
    if stated["seed"] is not None:
        found["seed"] = stated["seed"]
    if reading.referable_from is not None:
        found["referable_from"] = reading.referable_from
    return found


def arguments_of_arrow(
    source: str | None,
    table: pa.Table,
    layout: Layout,
    reading: Reading,
    metadata: Mapping[str, object],
    *,
    untyped: bool = False,
) -> dict[str, Any]:
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
    for name, stem in LISTS.items():
        parts = sorted(
            (number, one) for one in columns if (number := table_columns.sample_number(one, stem)) is not None
        )
        if parts:
            columns[name] = np.stack([columns.pop(one) for _, one in parts], axis=1)
    if "prob" in columns:
        columns["probs"] = columns.pop("prob")
    twice = [f"the column '{name[:60]}' is left out: it appears twice" for name in times if name and times[name] > 1]
    layout = replace(layout, notes=(*layout.notes, *twice))
    found = FileColumns(columns, further, layout, metadata, source, untyped)
    return arguments_of(found, reading)


def _known(source: str | None, name: str, column: pa.ChunkedArray, reading: Reading) -> NDArray[Any] | None:
    """The values of a known column, as `_values` does; a type that Arrow cannot convert is refused in one line."""
    try:
        return _values(source, name, combined(unfolded(column, name, source)), reading)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        problem = f"has type {column.type}, which cannot be read"
        raise Check(source).fail(name, None, problem, "Store it as plain text or numbers.") from None


def _values(source: str | None, name: str, column: pa.Array, reading: Reading) -> NDArray[Any] | None:
    """The values of a known column; None where an optional one is empty throughout."""
    may_be_empty = ("grade", "patient_id", *(("label",) if reading.unlabelled else ()))
    if name in ("prob", "uncertainty") or name.startswith(("prob_", "grade_prob_", table_columns.NAMED)):
        may_be_empty = (*may_be_empty, name)  # of an image that cannot be graded
    if column.null_count == len(column) and len(column):
        if name == "image_id":  # an empty label may follow from the grade, and without any prob the reader refuses
            raise Check(source).fail(name, None, "is empty in every row")
        return None
    if column.null_count and name not in may_be_empty:
        row = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]
        chosen = " (labels of uncertain images alone make every result wrong)" if name == "label" else ""
        raise Check(source).fail(name, row, "is empty", f"Fill it, or drop the row{chosen}.")
    return _lists(source, name, column) if name in LISTS else _flat(source, name, column)


def unfolded(column: pa.ChunkedArray, name: str, source: str | Path | None) -> pa.ChunkedArray:
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
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def combined(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole if isinstance(whole, pa.Array) else pa.concat_arrays(column.unify_dictionaries().chunks)


def _flat(source: str | None, name: str, column: pa.Array) -> NDArray[Any]:
    check = Check(source)
    if name in table_columns.TEXT:
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            raise check.fail(name, None, f"has type {column.type}, needed is text")
        if pa.types.is_floating(column.type):  # whole numbers that a missing cell made floats
            return np.asarray(column.to_numpy(zero_copy_only=False))
        try:
            words = column.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise check.fail(name, None, f"has type {column.type}, needed is text") from None
        words = words.fill_null("") if words.null_count else words
        lengths = in_numpy(pa.compute.utf8_length(words))
        if len(words) and lengths.max() > MAX_TEXT:  # an array of text is as wide as its longest cell
            problem = f"has {lengths.max():,} characters, more than {MAX_TEXT:,}"
            raise check.fail(name, lengths.argmax(), problem, "Is a quotation mark missing?")
        check_width(len(words), int(lengths.max()) if len(words) else 0, name, source)
        zero = pa.compute.indices_nonzero(pa.compute.match_substring(words, "\0"))
        if len(zero):  # NumPy drops them at the end of text, which would make two ids one
            raise check.fail(name, zero[0].as_py(), "holds a zero byte")
        return as_text(words, int(lengths.max()) if len(words) else 0)
    if is_text(column.type):
        column = pa.compute.utf8_trim_whitespace(column.cast(pa.string()))
    if name == "label" and (pa.types.is_boolean(column.type) or pa.types.is_string(column.type)):
        column = _without_words(column)
    if name == "grade" and pa.types.is_string(column.type):
        gone = pa.compute.is_in(pa.compute.utf8_lower(column), pa.array(NOT_KNOWN))
        column = pa.compute.replace_with_mask(column, gone, pa.scalar(None, pa.string()))
    try:
        return in_numpy(column.cast(pa.float64()))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise not_a_number(source, name, column) from None


def in_numpy(numbers: pa.Array) -> NDArray[Any]:
    """Return numbers as an array, missing ones as NaN; Arrow's own conversion imports pandas, which takes longer than a small file."""
    return np.from_dlpack(numbers) if not numbers.null_count else np.asarray(numbers.to_numpy(zero_copy_only=False))


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
    for start in range(0, len(column), BLOCK):
        values = column.slice(start, BLOCK)
        if _are_numbers(values[0]) and _are_numbers(values):
            continue
        for row, value in enumerate(values, start=start + 1):
            if not _are_numbers(value):
                text = str(value.as_py())
                problem, hint = f"is '{text[:40]}', not a number", _number_instead(name, text)
                return InputError(problem, file=source, row=row, column=name, hint=hint)
    return InputError(f"has type {column.type}, needed are numbers", file=source, column=name)


def _are_numbers(values: pa.Array | pa.Scalar) -> bool:
    try:
        values.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


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
    return f"Write a number{' from 0 to 1' if name != 'uncertainty' else ''} with a decimal point, such as 0.25."


def _lists(source: str | None, name: str, column: pa.Array) -> NDArray[np.float64]:
    """(N, S) from a column of lists, all of one length."""
    check = Check(source)
    kinds = pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list
    if not any(is_kind(column.type) for is_kind in kinds):
        single = {"probs": "Name a column of single numbers 'prob'."}
        hint = single.get(name, "In a CSV they are grade_prob_0 to grade_prob_4.")
        raise check.fail(name, None, "does not hold lists of numbers", hint)
    lengths = np.asarray(pa.compute.list_value_length(column))
    if len(lengths) == 0:
        return np.empty((0, 1))
    odd = np.flatnonzero(lengths != lengths[0])
    if odd.size:
        problem = f"holds {lengths[odd[0]]} samples where row 1 holds {lengths[0]}"
        raise check.fail(name, odd[0], problem, "Give every image equally many.")
    table_columns.check_size(source, len(lengths), int(lengths[0]))
    values = column.flatten()
    if values.null_count:
        row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) // int(lengths[0])
        raise check.fail(name, row, "holds an empty sample")
    try:
        flat = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise check.fail(name, None, f"has type {column.type}, needed are lists of numbers") from None
    return np.asarray(flat).reshape(len(lengths), int(lengths[0]))
