"""Images that cannot be graded: the column `gradable`, and rows without a probability.

`Predictions.select` leaves these images out, and so does every score; `retinabench clinic` counts them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.predictions.validation.check import Check

GRADABLE = "gradable"
"""The column that says which images can be graded: 1 or 0, yes or no, true or false."""
UNANSWERED = 0.5
"""What stands for the missing probability of an image that cannot be graded; no number is computed from it."""
_WORDS = {"0": False, "1": True, "false": False, "true": True, "no": False, "yes": True}


def gradable_rows(check: Check, values: NDArray[Any] | None, n: int) -> NDArray[np.bool_]:
    """Return whether each image can be graded.

    Args:
        check: Names the file in messages.
        values: (N,) the column `gradable`; None where the file has none: all can.
        n: Number of images.

    Returns:
        (N,) bool.

    Raises:
        InputError: A cell is neither yes nor no.
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

    Args:
        check: Names the file in messages.
        known: The columns of `Predictions`, changed in place.
        values: (N,) the column `gradable`, if any.

    Raises:
        InputError: An image that can be graded has no probability.
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
