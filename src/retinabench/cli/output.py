"""What every verb gives back: its table, progress, notes and exit code."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retinabench.core.atomic_files import json_text, write_json
from retinabench.core.progress import QUIET, Bars, Progress
from retinabench.core.untrusted.text import visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment


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


class _Shown:
    """What rich draws, with the control characters of names spelled out."""

    def __init__(self, drawn: RenderableType) -> None:
        self.drawn = drawn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(self.drawn, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def print_table(table: RenderableType, console: Console | None = None) -> None:
    """Print a table on standard output, or on a console."""
    if console is None:
        from rich.console import Console as Screen

        console = Screen()
    console.print(_Shown(table))


def say(line: object = "", *, error: bool = False, flush: bool = False) -> None:
    """Print text with the control characters of names spelled out.

    Args:
        line: The text.
        error: Whether it goes to standard error.
        flush: Whether it appears at once.
    """
    print(visible(str(line)), file=sys.stderr if error else sys.stdout, flush=flush)


def say_error(message: str) -> None:
    """Print an error on standard error, its head in red where the terminal and `NO_COLOR` allow it."""
    from rich.console import Console as Screen
    from rich.text import Text

    line = Text.assemble(("retinabench: error: ", "bold red"), visible(message))
    Screen(stderr=True).print(line, soft_wrap=True)


def print_result(table: RenderableType, json: Path | None, content: Callable[[], Any]) -> None:
    """Print the table of a result, and write the result as JSON where `--json` asks for it.

    Args:
        table: What a person reads.
        json: The file; `-` prints the JSON instead of the table.
        content: Returns what is written.
    """
    if json == STANDARD_OUTPUT:
        sys.stdout.write(json_text(content()))
        return
    if json is not None:
        write_json(json, content())
    print_table(table)


def print_path(path: Path, json: Path | None = None) -> None:
    """Print the path of what was written, unless standard output is for JSON."""
    if json != STANDARD_OUTPUT:
        say(path)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on standard error, each one once."""
    for note in dict.fromkeys(notes):
        say(f"note: {note}", error=True)
