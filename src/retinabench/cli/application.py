"""How verbs become an application: groups, and the example that ends each help."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from retinabench.core.errors import InputError

Verbs = Mapping[str, tuple[Callable[..., int | None], str]]
"""Name of a verb -> its function, and the example that ends its help."""


def application(text: str) -> typer.Typer:
    """Return an application without verbs.

    Args:
        text: What it is for, one sentence.

    Returns:
        The application. `-h` and `--help` show its help, in colour where the terminal and `NO_COLOR` allow it.
    """
    return typer.Typer(
        help=text,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def add_verbs(app: typer.Typer, verbs: Verbs, group: str | None = None) -> None:
    """Add verbs to an application.

    Args:
        app: The application.
        verbs: The verbs.
        group: Heading under which the help lists them.
    """
    for name, (function, example) in verbs.items():
        app.command(name, epilog=f"Example: {example}", rich_help_panel=group)(function)


def argument(value: str, text: str) -> Any:
    """Return an argument.

    Args:
        value: What stands for it in the help, such as ``FILE``.
        text: What the help says of it.

    Returns:
        What `Annotated` takes beside the type.
    """
    return typer.Argument(metavar=value, help=text)


def flag(*names: str, help: str, **further: Any) -> Any:
    """Return an option without a value.

    Args:
        *names: How it is given, such as ``--quiet``.
        help: What the help says of it.
        **further: As `typer.Option` has them.

    Returns:
        What `Annotated` takes beside the type.
    """
    return typer.Option(*names, metavar="", help=help, **further)


def option(name: str, value: str, text: str = "", **further: Any) -> Any:
    """Return an option that takes a value; a file in the place of the folder of `--out` is refused before any work.

    Args:
        name: How it is given, such as ``--seed``.
        value: What stands for its value in the help, such as ``N``.
        text: What the help says of it.
        **further: As `typer.Option` has them.

    Returns:
        What `Annotated` takes beside the type.
    """
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
    """Return what gives a verb the options of a dataclass, in the place of the one argument that gets an instance of it.

    Args:
        settings: The dataclass; each field whose type is one of the annotated types above is an option.
        name: The argument of the verb.
    """
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
