"""The two ways in which a command can end badly, and nothing else.

`InputError` says that the user can mend it: a file, a row, an option. The command line prints it in one
line and exits with code 2. `WorkError` says that correct input could not be worked off (the disk is full,
a loss became NaN): exit code 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class InputError(ValueError):
    """Wrong input or options: names file, row, column and hint, as far as they are known.

    `row` counts data rows from 1, as a person does: the header of a CSV is not a row.
    """

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
    """Correct input, but the work failed; the message says at which step and what may help."""


class DivergedError(WorkError):
    """A loss or a prediction is no longer a number: the same run would break in the same place again."""


def printable(text: str, limit: int = 1000) -> str:
    """Return `text` as one printable line: control characters escaped, cut at `limit` characters."""
    cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown `word`: its nearest valid spelling, then all valid ones."""
    known = sorted(known)
    close = get_close_matches(word, known, n=1, cutoff=0.5)
    hint = f"Did you mean '{close[0]}'? " if close else ""
    return f"{hint}Valid: {', '.join(known)}."
