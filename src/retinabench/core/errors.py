"""The errors that a command reports in one line.

`InputError` is one that the user can correct (a file, a row, an option): exit code 2. `WorkError` is a failure with
correct input (the disk is full, a loss became NaN): exit code 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class InputError(ValueError):
    """Wrong input or options."""

    def __init__(
        self,
        problem: str,
        *,
        file: str | Path | None = None,
        row: int | None = None,
        column: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.problem, self.file, self.row, self.column, self.hint = problem, file, row, column, hint
        place = [str(file)] if file is not None else []
        place += [f"row {row}"] if row is not None else []
        place += [f"column '{column}'"] if column is not None else []
        line = f"{', '.join(place)}: {problem}" if place else problem
        super().__init__(printable(f"{line.rstrip('.')}. {hint}" if hint else line))


class WorkError(RuntimeError):
    """A failure with correct input; the message says at which step and what may help."""


class DivergedError(WorkError):
    """A loss or a prediction is not finite; the same run would fail in the same place again."""


class OutOfMemoryError(WorkError):
    """Memory ran out, and the work cannot be cut into smaller parts; more memory may do it."""


def printable(text: str, limit: int = 1000) -> str:
    """Return `text` as one printable line: control characters escaped, cut at `limit` characters."""
    cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the nearest valid one, then all valid ones."""
    known = sorted(known)
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    hint = f"Did you mean '{close[0]}'? " if close else ""
    return f"{hint}Valid: {', '.join(known)}."


def one_edit(word: str, target: str) -> bool:
    """Return whether `word` becomes `target` by one letter changed, added or lost, or two neighbours exchanged."""
    start = next((k for k, (a, b) in enumerate(zip(word, target, strict=False)) if a != b), None)
    if start is None:
        return abs(len(word) - len(target)) == 1
    ours, theirs = word[start:], target[start:]
    return (
        ours[1:] == theirs[1:]
        or ours[1:] == theirs
        or ours == theirs[1:]
        or (ours[:2] == theirs[1::-1] and ours[2:] == theirs[2:])
    )
