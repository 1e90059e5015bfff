"""Ids of images and patients: none is missing, and none differs from another only by invisible characters.

Long columns are worked on as numbers in blocks of rows: a Python object for each of millions of ids takes 70 bytes.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

NOT_KNOWN = ("", "nan", "na", "n/a", "<na>", "nat", "none", "null")
"""What stands for a patient who is not known, in any case: empty cells, and what tools write for them."""
BLOCK = 1 << 16
"""Rows of a block."""
MOST_WORDS = 4
"""Texts of more than eight times as many bytes are sorted as text."""

Text = NDArray[np.str_]
Rows = NDArray[np.bool_]
_UNMISTAKABLE = re.compile(r"[!-~]+").fullmatch  # only visible ASCII characters


def is_missing(value: Any) -> bool:
    """Tell whether a cell of an object array holds no value: None, NaN, NaT or NA."""
    return value is None or str(value) == "<NA>" or bool(value != value)


def named_by_row(n: int) -> tuple[NDArray[np.str_], str]:
    """Return ids for n images that have none, the numbers of their rows from 1, and the note that says so."""
    ids = np.arange(1, n + 1).astype(np.str_)
    return ids, "no image_id: images are named by their row, in this order in every file that is compared"


def unmistakable(values: Text) -> bool:
    """Return whether all ids (N,) are written in visible ASCII characters alone, as most are; fast."""
    return all(bool(_visible(points).all()) for _, points in code_points(values))


def _visible(points: NDArray[np.uint32]) -> Rows:
    """(B,) whether the code points (B, L) of a text are visible ASCII, and zeros only behind its end."""
    behind = points == 0
    visible = points - np.uint32(ord("!")) <= ord("~") - ord(
        "!"
    )  # what is below wraps round to a large number
    return np.asarray((visible | behind).all(axis=1) & ~(behind[:, :-1] & ~behind[:, 1:]).any(axis=1))


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

    Shapes: `patient` (N,), `image` (N,), returns (N,).
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


def code_points(text: Text) -> Iterator[tuple[int, NDArray[np.uint32]]]:
    """Yield the first row of each block and its (B, L) code points, 0 behind the end of a text.

    Shapes: `text` (N,).
    """
    length = text.dtype.itemsize // 4
    for start in range(0, len(text), BLOCK):
        part = np.ascontiguousarray(text[start : start + BLOCK], f"=U{length}")
        yield start, part.view(np.uint32).reshape(len(part), length)


def first_row_with(text: Text, characters: str) -> int | None:
    """Return the first row that holds one of some characters, or None."""
    wanted = [ord(character) for character in characters]
    for start, points in code_points(text):
        found = points == wanted[0]
        for one in wanted[1:]:
            found |= points == one
        if found.any():
            return start + int(np.flatnonzero(found.any(axis=1))[0])
    return None


def first_empty(text: Text) -> int | None:
    """Return the first row without a character, or None."""
    for start, points in code_points(text):
        if not points.shape[1]:
            return start
        if len(empty := np.flatnonzero(points[:, 0] == 0)):
            return start + int(empty[0])
    return None


def plain_rows(text: Text, *, longer_than: int = 0) -> Rows:
    """Tell which rows hold visible ASCII characters alone.

    Shapes: `text` (N,), returns (N,).
    """
    plain = np.empty(len(text), bool)
    for start, points in code_points(text):
        rows = _visible(points)
        rows &= points[:, longer_than] != 0 if longer_than < points.shape[1] else False
        plain[start : start + len(rows)] = rows
    return plain


def all_differ(text: Text) -> bool:
    """Tell whether no text stands twice.

    Texts with the same hash of 64 bits are compared themselves.
    """
    hashes = _hashes(text)
    hashes.sort()
    twice = hashes[1:][hashes[1:] == hashes[:-1]]
    if not len(twice):
        return True
    alike = text[np.isin(_hashes(text), twice)].tolist()
    return len(set(alike)) == len(alike)


def _hashes(text: Text) -> NDArray[np.uint64]:
    hashes = np.empty(len(text), np.uint64)
    factors = np.random.default_rng(0).integers(1, 2**63, text.dtype.itemsize // 4, dtype=np.uint64) * 2 + 1
    for start, points in code_points(text):
        mixed = np.zeros(len(points), np.uint64)
        for column, factor in zip(points.T, factors, strict=True):
            mixed = (mixed + column) * factor
            mixed ^= mixed >> np.uint64(29)
        hashes[start : start + len(mixed)] = mixed
    return hashes


def numbered(text: Text) -> tuple[NDArray[np.intp], int]:
    """Number texts in their order.

    Shapes: `text` (N,), returns (N,).
    """
    words = _words(text) if len(text) > BLOCK else None
    if words is None:
        values, codes = np.unique(text, return_inverse=True)
        return np.asarray(codes, np.intp).reshape(-1), len(values)
    order = np.lexsort(words)  # the last is the first to tell texts apart
    new = np.zeros(len(text), bool)
    for word in words:
        ranked = word[order]
        new[1:] |= ranked[1:] != ranked[:-1]
    del words, ranked
    codes = np.empty(len(text), np.intp)
    codes[order] = np.cumsum(new, dtype=np.intp)
    return codes, int(np.count_nonzero(new)) + 1


def _words(text: Text) -> list[NDArray[np.uint64]] | None:
    """Eight characters of every text as one number each, the last ones first; None where there are others than ASCII."""
    length = text.dtype.itemsize // 4
    count = -(-length // 8)
    if not 0 < count <= MOST_WORDS:
        return None
    words = [np.empty(len(text), np.uint64) for _ in range(count)]
    for start, points in code_points(text):
        if points.max() > 127:
            return None
        padded = np.zeros((len(points), 8 * count), np.uint8)
        padded[:, :length] = points
        numbers = padded.view(">u8")
        for place, word in enumerate(reversed(words)):
            word[start : start + len(points)] = numbers[:, place]
    return words
