"""Long columns of text, worked on as numbers in blocks of rows: a Python object for each of millions of ids takes 70 bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

BLOCK = 1 << 16
"""Rows of a block."""
MOST_WORDS = 4
"""Texts of more than eight times as many bytes are sorted as text."""

Text = NDArray[np.str_]
Rows = NDArray[np.bool_]


def code_points(text: Text) -> Iterator[tuple[int, NDArray[np.uint32]]]:
    """Yield the first row of each block and its (B, L) code points, 0 behind the end of a text.

    Args:
        text: (N,) texts.
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

    Args:
        text: (N,) texts.
        longer_than: And more of them than this.

    Returns:
        (N,) truth values.
    """
    plain = np.empty(len(text), bool)
    for start, points in code_points(text):
        inside = (points - np.uint32(ord("!")) <= ord("~") - ord("!")) | (points == 0)
        rows = inside.all(axis=1)
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

    Args:
        text: (N,) texts.

    Returns:
        (N,) number of each among the G different ones, and G, as `numpy.unique` finds them.
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
