"""The one page builder: a Jinja template and its facts in, one self-contained HTML page out.

A page extends `templates/base.html.j2`, which has the blocks `head` (further style), `kicker`, `title`, `standfirst`,
`contents`, `main` and `disclaimer`. Templates that belong to one report stand in the folder `templates` of its package:

    page = render("page.html.j2", {"title": ...}, package="retinabench.reports.evaluation")

Everything is escaped, the style sheet is inside, and a missing name is an error. The page runs one script, `SCRIPTS`, which is
the same in every page and which the page's content security policy names by its hash: it sorts and filters tables, opens
folded sections, and shows texts that the page holds already. Without it the page is complete. Templates know the filters of
`FILTERS`; `parts.html.j2` has macros for sections, figures, legends, findings and lists of facts. A template whose name does
not end in `.html.j2` is text (Markdown): nothing is escaped but what passes through the filter `md`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from retinabench.core.untrusted import visible
from retinabench.core.version import __version__
from retinabench.reports.toolkit import renderers
from retinabench.reports.toolkit.number_format import NumberFormat, Quantity, join_names, percent, plain

TOOLKIT = "retinabench.reports.toolkit"
SCRIPTS = ("tables.js", "folds.js", "explore.js", "hover.js", "choices.js")
"""The parts of the one script of all pages."""


@dataclass(frozen=True)
class Finding:
    """A paragraph of results: a lead of a few words, its sentences, and "good", "bad" or "" (neither)."""

    lead: str
    text: str
    mood: str = ""


@dataclass(frozen=True)
class Fact:
    """A term and what there is to say about it: a line of a list."""

    term: str
    text: str


def render(template: str, context: Mapping[str, object], *, package: str = TOOLKIT) -> str:
    """Return a filled template."""
    style = Markup(_source(TOOLKIT, "style.css") or "")  # noqa: S704 - a file of this package
    script, script_hash = _script()
    known = {"style": style, "script": script, "script_hash": script_hash, "version": __version__}
    page = visible(_environment(package).get_template(template).render({**context, **known}))
    return re.sub(r"(?<=\d) %", "\N{NO-BREAK SPACE}%", page) if template.endswith(".html.j2") else page


def macros(template: str, *, package: str = TOOLKIT) -> Any:
    """Return the macros of a template as attributes: `macros("findings.html.j2").shift(facts)` returns `Markup`."""
    return _environment(package).get_template(template).module


@cache
def _script() -> tuple[Markup, str]:
    """Return the script of all pages, and its hash as a content security policy writes it."""
    text = "\n" + "".join(_source(TOOLKIT, name) or "" for name in SCRIPTS)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Markup(text), digest  # noqa: S704 - files of this package


def script_json(content: object) -> Markup:
    """Return data as JSON for a `script` element of type `application/json`, in which no tag can end it."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # No character is left that HTML gives a meaning to.
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))  # noqa: S704


@cache
def _environment(package: str) -> Environment:
    def load(name: str) -> str | None:
        return _source(package, name) or _source(TOOLKIT, name)

    environment = Environment(
        loader=FunctionLoader(load),
        autoescape=select_autoescape(enabled_extensions=("html.j2",), default=False),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    return environment


@cache
def _source(package: str, name: str) -> str | None:
    file = files(package) / "templates" / name
    return file.read_text("utf-8") if file.is_file() else None


def _form(digits: int, style: str) -> NumberFormat:
    if style == "percent":
        return NumberFormat(0, scale=100, suffix=" %")
    return NumberFormat(digits, signed=style == "signed")


def _number(quantity: Quantity, digits: int = 2, style: str = "plain") -> Markup:
    """Write a quantity without its interval; style: "plain", "signed" or "percent"."""
    return quantity.html(_form(digits, style))


def _whole(quantity: Quantity, digits: int = 2, style: str = "plain") -> Markup:
    """Write a quantity with its interval."""
    return quantity.whole_html(_form(digits, style))


def _count(number: int) -> str:
    return f"{number:,}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: `1 image`, `1,200 images`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def capitalise(text: str) -> str:
    """Return a sentence with a capital at its start, the rest unchanged; markup stays markup."""
    return text[:1].upper() + text[1:]


def quoted(name: str) -> Markup:
    """Return a name in quotation marks: the name of a file may be any word, such as "never"."""
    return Markup("“{}”").format(name)


FILTERS: dict[str, Callable[..., Any]] = {
    "table": renderers.to_html,
    "markdown_table": renderers.to_markdown,
    "number": _number,
    "whole": _whole,
    "plain": plain,
    "percent": percent,
    "count": _count,
    "counted": counted,
    "join_names": join_names,
    "quoted": quoted,
    "capitalise": capitalise,
    "md": renderers.escape_markdown,
}
