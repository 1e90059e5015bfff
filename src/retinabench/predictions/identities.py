"""Ids of images and patients: none is missing, and none differs from another only by invisible characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.predictions.code_points import plain_rows

NOT_KNOWN = ("", "nan", "na", "n/a", "<na>", "nat", "none", "null")
"""What stands for a patient who is not known, in any case: empty cells, and what tools write for them."""
_UNMISTAKABLE = re.compile(r"[!-~]+").fullmatch  # only visible ASCII characters
_ROWS = 1 << 16  # ids that are looked at together


def is_missing(value: Any) -> bool:
    """Tell whether a cell of an object array holds no value: None, NaN, NaT or NA."""
    return value is None or str(value) == "<NA>" or bool(value != value)


def named_by_row(n: int) -> tuple[NDArray[np.str_], str]:
    """Return ids for n images that have none, the numbers of their rows from 1, and the note that says so."""
    ids = np.arange(1, n + 1).astype(np.str_)
    return ids, "no image_id: images are named by their row, in this order in every file that is compared"


def unmistakable(values: NDArray[np.str_]) -> bool:
    """Return whether all ids (N,) are written in visible ASCII characters alone, as most are; fast."""
    width = values.dtype.itemsize // 4
    for start in range(0, len(values) if width else 0, _ROWS):
        codes = np.ascontiguousarray(values[start : start + _ROWS]).view(np.uint32).reshape(-1, width)
        behind = codes == 0  # what fills an id up to the width of the array
        visible = codes - np.uint32(33) < np.uint32(94)  # ! to ~; what is below wraps round to a large number
        if not (visible | behind).all() or (behind[:, :-1] & ~behind[:, 1:]).any():
            return False
    return True


def plain(text: str) -> str:
    """Return text in composed form, without invisible characters and outer blanks, inner blanks single."""
    if not text.isascii() or not text.isprintable():
        text = unicodedata.normalize("NFC", text)
        text = "".join(c for c in text if c.isspace() or unicodedata.category(c) not in ("Cc", "Cf"))
    return " ".join(text.split())


def indistinct(values: Iterable[str]) -> tuple[str, str] | None:
    """Return two different ids that look the same, such as `p1` and `p1` with a blank behind it; None without such."""
    words = set(values)
    if _UNMISTAKABLE("".join(words)):  # a million ids at once
        return None
    seen: dict[str, str] = {}
    for word in sorted(word for word in words if not _UNMISTAKABLE(word)):
        form = plain(word)
        if form != word:
            other = form if form in words else seen.setdefault(form, word)
            if other != word:
                return other, word
    return None


def own_patients(patient: NDArray[np.str_], image: NDArray[np.str_]) -> tuple[NDArray[np.str_], int]:
    """Make every image without a patient a patient of its own.

    Args:
        patient: (N,) ids, `NOT_KNOWN` where there is none.
        image: (N,) ids of the images.

    Returns:
        (N,) ids, and how many were made.
    """
    odd = np.flatnonzero(~plain_rows(patient, longer_than=max(map(len, NOT_KNOWN))))
    known, place = np.unique(patient[odd], return_inverse=True)
    gone = np.zeros(len(patient), bool)
    gone[odd] = np.array([word.strip().lower() in NOT_KNOWN for word in known.tolist()], bool)[place]
    if not gone.any():
        return patient, 0
    prefix, ids = "image ", set(known.tolist())  # the ids with a blank among them
    while any(f"{prefix}{one}" in ids for one in image[gone].tolist()):
        prefix += "_"
    wide = patient.astype(np.result_type(patient.dtype, np.char.add(prefix, image[gone]).dtype))
    wide[gone] = np.char.add(prefix, image[gone])
    return wide, int(gone.sum())
