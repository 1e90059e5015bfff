"""How verbs become an application, and what each gives back: its table, progress, notes and exit code."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin, get_type_hints

import typer

from retinabench.core.errors import InputError
from retinabench.core.files import json_text, write_json
from retinabench.core.progress import QUIET, Bars, Progress
from retinabench.core.untrusted import visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment


Verbs = Mapping[str, tuple[Callable[..., int | None], str]]
"""Name of a verb -> its function, and the example that ends its help."""


def application(text: str) -> typer.Typer:
    """Return an application without verbs."""
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def add_verbs(app: typer.Typer, verbs: Verbs, group: str | None = None) -> None:
    """Add verbs to an application."""
    for name, (function, example) in verbs.items():
        app.command(name, epilog=f"Example: {example}", rich_help_panel=group)(function)


def argument(value: str, text: str) -> Any:
    """Return an argument."""
    return typer.Argument(metavar=value, help=text)


def flag(*names: str, help: str, **further: Any) -> Any:
    """Return an option without a value."""
    return typer.Option(*names, metavar="", help=help, **further)


def option(name: str, value: str, text: str = "", **further: Any) -> Any:
    """Return an option that takes a value; a file in the place of the folder of `--out` is refused before any work."""
    if (name, value) == ("--out", "FOLDER"):
        further.setdefault("callback", _folder_to_write)
    return typer.Option(name, metavar=value, help=text, **further)


def _folder_to_write(out: Path | None) -> Path | None:
    for path in () if out is None else (out, *out.parents):
        if path.exists() and not path.is_dir():
            raise InputError(
                "is a file where a folder is needed to write into", file=path, hint="Choose another --out."
            )
    return out


def with_options(settings: type[Any], name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what gives a verb the options of a dataclass, in the place of the one argument that gets an instance of it."""
    hints = get_type_hints(settings, include_extras=True)
    added = {
        field.name: inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in dataclasses.fields(settings)
        if get_origin(hints[field.name]) is Annotated
    }

    def give(verb: Callable[..., Any]) -> Callable[..., Any]:
        own = inspect.signature(verb, eval_str=True)
        parameters = [
            one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for p in own.parameters.values()
            for one in (added.values() if p.name == name else (p,))
        ]

        @functools.wraps(verb)
        def command(**given: Any) -> Any:
            chosen = {option: given.pop(option) for option in added}
            return verb(**given, **{name: settings(**chosen)})

        command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return give


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
    """Return what shows the progress of long work; nothing with `--quiet`."""
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
    """Print text with the control characters of names spelled out."""
    print(visible(str(line)), file=sys.stderr if error else sys.stdout, flush=flush)


def say_error(message: str) -> None:
    """Print an error on standard error, its head in red where the terminal and `NO_COLOR` allow it."""
    from rich.console import Console as Screen
    from rich.text import Text

    line = Text.assemble(("retinabench: error: ", "bold red"), visible(message))
    Screen(stderr=True).print(line, soft_wrap=True)


def print_result(table: RenderableType, json: Path | None, content: Callable[[], Any]) -> None:
    """Print the table of a result, and write the result as JSON where `--json` asks for it."""
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
