"""What every verb prints: its table, progress and notes."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from retinabench.core.progress import QUIET, Bars, Progress

if TYPE_CHECKING:
    from rich.console import RenderableType


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
