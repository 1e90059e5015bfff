"""What every verb gives back: its table, progress, notes and exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinabench.core.atomic_files import json_text, write_json
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
    INTERRUPTED = 130  # Ctrl-C


STANDARD_OUTPUT = Path("-")


def progress_of(quiet: bool) -> Progress:
    """Return what tells of long work; nothing with `--quiet`."""
    return QUIET if quiet else Bars()


def print_result(table: RenderableType, json: Path | None, content: Callable[[], Any]) -> None:
    """Print the table of a result, and write the result as JSON where `--json` asks for it.

    Args:
        table: What a person reads.
        json: The file; `-` prints the JSON instead of the table.
        content: Returns what is written.
    """
    from rich.console import Console

    if json == STANDARD_OUTPUT:
        sys.stdout.write(json_text(content()))
        return
    if json is not None:
        write_json(json, content())
    Console().print(table)


def print_path(path: Path, json: Path | None = None) -> None:
    """Print the path of what was written, unless standard output is for JSON."""
    if json != STANDARD_OUTPUT:
        print(path)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error, each one once."""
    for note in dict.fromkeys(notes):
        print(f"note: {note}", file=sys.stderr)
