"""The checks of the values of labels, grades, probabilities and `gradable`, with what a wrong value probably is.

`Predictions.select` leaves out images that cannot be graded, and so does every score; `retinabench clinic` counts them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax

from retinabench.predictions.check import SHAPES, Check, sample_column
from retinabench.predictions.identities import is_missing

REFERABLE_FROM = 2
"""The lowest referable grade of the international scale."""
UNKNOWN_GRADE = -1
FEW_ROWS = 5
"""Below so many rows, samples whose sum is nearly 1 may be chance: only the rounding of printed numbers is allowed."""
_ROUNDING = 0.03  # of the sum of printed probabilities
GRADABLE = "gradable"
"""The column that says which images can be graded: 1 or 0, yes or no, true or false."""
UNANSWERED = 0.5
"""What stands for the missing probability of an image that cannot be graded; no number is computed from it."""
_WORDS = {"0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}


def checked_labels(check: Check, values: NDArray[Any]) -> NDArray[np.int8]:
    """(N,) zeros and ones."""
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
        raise check.fail(
            "grade",
            bad[0],
            f"is {numbers[bad[0]]:g}, not one of 0, 1, 2, 3, 4",
            "Use the international scale, or leave the column out.",
        )
    return numbers.astype(np.int8)


def check_agreement(check: Check, label: NDArray[np.int8], grade: NDArray[np.int8], lowest: int) -> None:
    """Refuse a label that contradicts the grade.

    Shapes: `label` (N,), `grade` (N,).
    """
    graded = grade != UNKNOWN_GRADE
    wrong = np.flatnonzero(graded & (label != (grade >= lowest)))
    if not wrong.size:
        return
    row = wrong[0]
    fitting = [k for k in range(1, 5) if (label == (grade >= k))[graded].all()]
    hint = "Correct one of them, or say --referable-from label where a label also counts other findings."
    if fitting:
        hint = f"Every label is 1 where grade >= {fitting[0]}: say --referable-from {fitting[0]} if that is meant."
    raise check.fail(
        "label",
        row,
        f"is {label[row]} where the grade is {grade[row]} ({wrong.size} such rows), and images are referable from "
        f"grade {lowest} on",
        hint,
    )


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
    """Refuse class probabilities, whose rows sum to 1, in the place of posterior samples.

    Samples of one probability sum to 1 in every row only where their mean is the same for all images. The tolerance
    is the rounding of printed numbers, or a twentieth of what the columns differ by: the samples of a model that says
    about 1/S of every image are not refused. A few rows that do not sum to 1 make no samples of the others.

    Shapes: `probs` (N, S).
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
    """What values outside [0, 1] may be, where all of them agree with it."""
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
    """Return P(referable), the sum of the classes from `lowest` on.

    Shapes: `probs` (N, C), returns (N,).
    """
    values = check.finite("probs", check.array("probs", probs), (2, 3))
    classes = values.shape[-1]
    if not 0 < lowest < classes:
        raise check.fail(
            "probs", None, f"has {classes} classes: none is below, or none from, class {lowest} on"
        )
    sums = values.sum(axis=-1)
    outside = (values < -_ROUNDING) | (values > 1 + _ROUNDING)
    off = np.argwhere(outside.any(axis=-1) | (np.abs(sums - 1) > _ROUNDING))
    if off.size:
        place = tuple(off[0])
        logits = bool(outside.any() and np.ptp(sums) > 2 * _ROUNDING)
        hint = "These are no class probabilities: posterior samples of P(referable) need no softmax."
        raise check.fail(
            "probs",
            off[0][0],
            f"sums to {sums[place]:g} over the classes, not to 1",
            "Are they logits? Use Predictions.from_logits." if logits else hint,
        )
    return np.asarray(np.clip(values[..., lowest:].sum(axis=-1) / sums, 0, 1))


def class_probabilities(check: Check, logits: ArrayLike) -> NDArray[np.float64]:
    """Return the softmax of logits over their last axis, or the sigmoid of a single logit as two classes.

    Shapes: `logits` (N,).
    """
    values = check.finite("logits", check.array("logits", logits), (1, 2, 3))
    if values.ndim == 1:
        values = values[:, None]
    if values.shape[-1] == 1:
        return np.concatenate([expit(-values), expit(values)], axis=-1)
    return np.asarray(softmax(values, axis=-1))


def gradable_rows(check: Check, values: NDArray[Any] | None, n: int) -> NDArray[np.bool_]:
    """Return whether each image can be graded.

    Shapes: `values` (N,), returns (N,).
    """
    found = np.ones(n, bool)
    if values is None:
        return found
    levels, place = np.unique(values, return_inverse=True)
    for k, level in enumerate(levels.tolist()):
        text = f"{level:g}" if isinstance(level, float) else str(level).strip().lower()
        rows = place == k
        if text not in _WORDS:
            shown = "empty" if text in ("", "nan") else f"'{level}'"
            row = int(np.flatnonzero(rows)[0])
            raise check.fail(GRADABLE, row, f"is {shown}, not 0 or 1", "1: the image can be graded.")
        found[rows] = _WORDS[text]
    return found


def fill_ungradable(check: Check, known: dict[str, NDArray[Any]], values: NDArray[Any] | None) -> None:
    """Fill the missing probabilities and uncertainties of images that cannot be graded.

    Shapes: `values` (N,).
    """
    good = gradable_rows(check, values, len(known["probs"]))
    for name, filled in (("probs", UNANSWERED), ("uncertainty", 0.0)):
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
