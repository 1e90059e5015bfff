"""What every verb gives back: its table, progress, notes and exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

from retinabench.core.progress import QUIET, Bars, Progress

if TYPE_CHECKING:
    from rich.console import RenderableType


class ExitCode(IntEnum):
    """What the exit code of a command says; the highest that applies is returned."""

    DONE = 0
    FAILED = 1  # the work failed on correct input
    WRONG_INPUT = 2  # a file or an option is wrong
    REFUSED = 3  # the data do not support the certificate that was asked for
    REFUTED = 4  # a certificate is refuted by the labels of newer images, or its monitor raises an alarm


def progress_of(quiet: bool) -> Progress:
    """Return what tells of long work; nothing with `--quiet`."""
    return QUIET if quiet else Bars()


def print_table(table: RenderableType) -> None:
    """Print a table on standard output."""
    from rich.console import Console

    Console().print(table)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error, each one once."""
    for note in dict.fromkeys(notes):
        print(f"note: {note}", file=sys.stderr)
