"""Numbers, tables and sentences as text: one table model and its renderers, HTML, Markdown, CSV and terminal, and the templates that hold them.

A `Table` has one or more `Block`s; a block has `Column`s and `Row`s; a row has a label and one `Cell` per column. A cell
holds text or a `Quantity`: a number with its interval, its standard error and the name under which a page carries its exact value.

**How many decimals.** A number with an interval gets as many as its interval bears out: the last one is at most a fifth of
the interval's width, so that the ends can be told apart and nothing is claimed beyond them. Of a number with a standard
error alone the width is four standard errors. A number without either has the decimals of its `NumberFormat`.

**Templates** (Jinja) that belong to one report stand in the folder `templates` of its package. In those whose name does not end in
`.html.j2`, which are text (Markdown), nothing is escaped but what passes through the filter `md`.
"""

from __future__ import annotations

import io
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from importlib.util import cache_from_source
from typing import Any, Literal

import numpy as np
from jinja2 import Environment, FileSystemBytecodeCache, FunctionLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from rich import box
from rich import table as rich_table
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape as escape_rich
from rich.measure import Measurement
from rich.padding import Padding
from rich.text import Text

from retinabench.core.errors import csv_text, visible
from retinabench.metrics.intervals import Interval

MINUS, DASH = "−", "–"
TOOLKIT = "retinabench.reports.toolkit"
MOST_DIGITS = 6


@dataclass(frozen=True)
class NumberFormat:
    """How a number is written: the value times `scale`, `digits` decimals (at most `most` for an interval), `suffix`, and a plus sign where `signed`."""

    digits: int = 3
    signed: bool = False
    scale: float = 1.0
    suffix: str = ""
    most: int = MOST_DIGITS

    def __call__(self, value: float) -> str:
        """Return the number as text with a true minus sign; "undefined" where it is not finite."""
        if not math.isfinite(value):
            return "undefined"
        text = f"{abs(self.scale * value):,.{self.digits}f}"
        sign = "" if not text.strip("0.") else MINUS if value < 0 else "+" if self.signed else ""
        return f"{sign}{text}{self.suffix}"

    def fitted(self, width: float) -> NumberFormat:
        """Return the same format with the decimals that an interval of this width bears out; see the top of the file."""
        width = abs(self.scale) * width
        if not (math.isfinite(width) and width > 10**-MOST_DIGITS):  # a narrower one is rounding
            return self
        digits = math.ceil(-math.log10(width / 5) - 1e-9)
        return replace(self, digits=min(max(digits, 0), self.most))

    def interval(self, low: float, high: float) -> str:
        return f"[{self(low)}, {self(high)}]" if math.isfinite(low) and math.isfinite(high) else ""


TWO_DIGITS, THREE_DIGITS = NumberFormat(2), NumberFormat(3)
PERCENT = NumberFormat(0, scale=100, suffix=" %")
COUNT = NumberFormat(0)


def plain(value: float, digits: int = 2, *, signed: bool = False) -> str:
    return NumberFormat(digits, signed)(value)


def percent(value: float, digits: int = 0) -> str:
    return NumberFormat(digits, scale=100, suffix=" %")(value)


def p_value(p: float) -> str:
    """Return a p-value as text: three decimals, "<0.001" below one thousandth (none is zero), a dash where it is unknown."""
    return DASH if not math.isfinite(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def join_names(names: Sequence[str]) -> Markup:
    """Join escaped names as prose does: "A", "A and B", "A, B and C"."""
    parts = [escape(name) for name in names]
    if len(parts) < 2:
        return Markup("").join(parts)
    return Markup(", ").join(parts[:-1]) + Markup(" and ") + parts[-1]


@dataclass(frozen=True)
class Place:
    """The name of a number in `scores.json` and `table.csv`: entry (a method), set and score."""

    entry: str
    set: str
    score: str


@dataclass(frozen=True)
class Quantity:
    """A number with its 95 % interval and its standard error over runs, NaN where unknown; `place` names it in the files beside a page, None leaves its exact value out."""

    value: float
    low: float = math.nan
    high: float = math.nan
    error: float = math.nan
    place: Place | None = None

    @property
    def defined(self) -> bool:
        return math.isfinite(self.value)

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def sign(self, against: float = 0.0) -> int:
        if not self.bounded:
            return 0
        return 1 if self.low > against else -1 if self.high < against else 0

    def form(self, form: NumberFormat = THREE_DIGITS) -> NumberFormat:
        return form.fitted(self.high - self.low if self.bounded else 4 * self.error)

    def error_form(self, form: NumberFormat = THREE_DIGITS) -> NumberFormat:
        value, own = self.form(form), form.fitted(4 * self.error)
        return replace(own, digits=max(value.digits, own.digits), signed=False)

    def html(self, form: NumberFormat = TWO_DIGITS, part: str = "value") -> Markup:
        """Return one part ("value", "low", "high" or "standard_error") as HTML, with its exact value as an attribute.

        The element has the attributes `data-entry`, `data-set`, `data-score`, `data-part` and `data-value` (all
        digits), so that a page can be checked against `scores.json` and `table.csv`.
        """
        if part == "standard_error":
            number, form = self.error, self.error_form(form)
        else:
            number, form = float(getattr(self, part)), self.form(form)
        if not math.isfinite(number) or self.place is None:
            return Markup("<span>{}</span>").format(form(number))
        return Markup(
            '<span data-entry="{}" data-set="{}" data-score="{}" data-part="{}" data-value="{!r}">{}</span>'
        ).format(self.place.entry, self.place.set, self.place.score, part, float(number), form(number))

    def interval_html(self, form: NumberFormat = TWO_DIGITS) -> Markup:
        if not self.bounded:
            return Markup("")
        return Markup('<span class="whole">[{}, {}]</span>').format(self.html(form, "low"), self.html(form, "high"))

    def whole_html(self, form: NumberFormat = TWO_DIGITS) -> Markup:
        interval = self.interval_html(form)
        return Markup("{} {}").format(self.html(form), interval) if interval else self.html(form)


def pooled(found: Sequence[Interval]) -> Quantity:
    value, low, high = np.array([(one.value, one.low, one.high) for one in found], np.float64).T
    error = float(value.std(ddof=1) / np.sqrt(len(value))) if len(value) > 1 else np.nan
    return Quantity(float(value.mean()), float(low.mean()), float(high.mean()), error)


ARROWS = {"higher": "↑", "lower": "↓", "": ""}
Direction = Literal["higher", "lower", ""]
Emphasis = Literal["", "best", "good", "bad"]
FIXED = Markup(' class="fixed"')
_CLASSES = {"": "", "best": "best", "good": "yes", "bad": "no"}
NARROWEST_LABEL = 14
"""Labels of rows are broken into lines of at least this many characters before the columns are given up."""


@dataclass(frozen=True)
class Column:
    """A column: `group` stands above several neighbours, `text` is aligned left and broken into lines, `facts` (such as its set and score) are columns of the CSV."""

    label: str
    group: str = ""
    direction: Direction = ""
    text: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def header(self) -> str:
        return f"{self.label}\N{NO-BREAK SPACE}{ARROWS[self.direction]}" if self.direction else self.label


@dataclass(frozen=True)
class Cell:
    """A number with its interval and error, or text; `note` behind it, `below` in small print, `why` it is undefined (a footnote), `runs` it is the mean of."""

    content: Quantity | str = ""
    form: NumberFormat = THREE_DIGITS
    emphasis: Emphasis = ""
    note: str = ""
    below: str = ""
    why: str = ""
    runs: int = 1

    @classmethod
    def number(
        cls,
        value: float | None,
        low: float | None = None,
        high: float | None = None,
        error: float | None = None,
        *,
        form: NumberFormat = THREE_DIGITS,
        place: Place | None = None,
        **further: Any,
    ) -> Cell:
        a, b, c, d = (math.nan if part is None else float(part) for part in (value, low, high, error))
        return cls(Quantity(a, b, c, d, place), form, **further)

    @classmethod
    def of(cls, value: Interval, form: NumberFormat = THREE_DIGITS) -> Cell:
        """Return a cell of a value with its interval; a dash where the value is undefined."""
        return cls.number(value.value, value.low, value.high, form=form) if math.isfinite(value.value) else UNDEFINED

    @classmethod
    def count(cls, number: int) -> Cell:
        return cls.number(number, form=COUNT)

    @property
    def defined(self) -> bool:
        return isinstance(self.content, str) or self.content.defined


UNDEFINED = Cell("–")  # A cell without content.


@dataclass(frozen=True)
class Row:
    """A row: its label and one cell per column; `control`: a muted reference rather than an entry; `rule`: a line is drawn above it."""

    label: str
    cells: Sequence[Cell]
    control: bool = False
    rule: bool = False


@dataclass(frozen=True)
class Block:
    """Rows below one header, with an optional title above them."""

    columns: Sequence[Column]
    rows: Sequence[Row]
    title: str = ""


@dataclass(frozen=True)
class Table:
    """A table of one or several blocks of rows.

    `name` is that of its files and of its LaTeX label; `title` stands before the caption, with `number` ("" where a paper has none) in
    Markdown and LaTeX; `facts` are the first columns of the CSV. Nobody sorts rows that are `fixed`, such as those of different measures.
    """

    caption: str
    blocks: Sequence[Block]
    row_header: str = ""
    note: str = ""
    name: str = ""
    title: str = ""
    number: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    fixed: bool = False

    @classmethod
    def of(
        cls, caption: str, columns: Sequence[Column], rows: Sequence[Row], *, row_header: str = "", note: str = ""
    ) -> Table:
        return cls(caption, [Block(columns, rows)], row_header, note)

    @property
    def width(self) -> int:
        return max((len(block.columns) for block in self.blocks), default=0)

    def __rich__(self) -> Group:
        return to_terminal(self)


def to_html(table: Table) -> Markup:
    """Return a scrollable HTML table with its caption; classes are those of `templates/style.css`."""
    parts = [_html_block(block, table, first=not number) for number, block in enumerate(table.blocks)]
    note = Markup('\n<p class="note">{}</p>').format(table.note) if table.note else Markup("")
    return Markup("\n").join(parts) + note


def _html_block(block: Block, table: Table, *, first: bool) -> Markup:
    head = Markup("").join(
        Markup('<th scope="col" class="text">{}</th>' if column.text else '<th scope="col">{}</th>').format(  # noqa: S704 - constants, which `format` fills and escapes
            header_text(column)
        )
        for column in [Column(table.row_header, text=True), *block.columns]
    )
    title = Markup('<tr><th scope="rowgroup" colspan="{}">{}</th></tr>\n').format(len(block.columns) + 1, block.title)
    rows = Markup("\n").join(_html_row(row, block.columns) for row in block.rows)
    label = f"{table.caption}: {block.title}" if block.title else table.caption
    caption = Markup("<caption><span>{}</span></caption>\n").format(table.caption) if first else Markup("")
    return Markup(
        '<div class="scroll" role="group" tabindex="0" aria-label="{}">\n<table{} aria-label="{}">\n{}'
        "<thead><tr>{}</tr></thead>\n<tbody>{}{}</tbody></table></div>"
    ).format(label, FIXED if table.fixed else "", label, caption, head, title if block.title else "", rows)


def _html_row(row: Row, columns: Sequence[Column]) -> Markup:
    cells = Markup("").join(_html_cell(cell, text=column.text) for cell, column in zip(row.cells, columns, strict=True))
    opened = Markup('<tr class="control">' if row.control else "<tr>")  # noqa: S704 - constants
    return opened + Markup('<th scope="row">{}</th>').format(row.label) + cells + Markup("</tr>")


def _html_cell(cell: Cell, *, text: bool) -> Markup:
    """Return the `td`; a number without a place has its exact value as `data-sort`, by which the page sorts."""
    content = cell.content
    key = ""
    if isinstance(content, Quantity) and content.defined and content.place is None:
        key = f' data-sort="{float(content.value)!r}"'
    kind = ' class="text wrap"' if text else ""
    return Markup(f"<td{kind}{key}>{{}}</td>").format(cell_html(cell))  # noqa: S704 - constants and a number


def cell_html(cell: Cell) -> Markup:
    """Return the content of a cell: its number or text, then in small print its interval and remarks."""
    content = cell.content
    if isinstance(content, str):
        html, small = Markup("{}").format(content), [Markup("{}").format(cell.below)]
    elif not content.defined:
        html, small = Markup(DASH), [Markup("{}").format(cell.why), Markup("{}").format(cell.below)]  # noqa: S704 - a constant
    else:
        html = content.html(cell.form)
        small = [content.interval_html(cell.form), Markup("{}").format(cell.below)]
    kind = _CLASSES[cell.emphasis]
    marked = Markup('<span class="{}">{}</span>')
    if kind and not cell.note:
        html = marked.format(kind, html)
    if isinstance(content, Quantity) and content.defined and math.isfinite(content.error):
        html = Markup("{} ± {}").format(html, content.html(cell.form, "standard_error"))
    if cell.note:
        html = Markup("{} {}").format(html, marked.format(kind, cell.note) if kind else cell.note)
    below = Markup(" ").join(one for one in small if one)
    return html + Markup('<span class="interval">{}</span>').format(below) if below else html


def cell_text(cell: Cell) -> str:
    content = cell.content
    parts = [content if isinstance(content, str) else DASH]
    if isinstance(content, Quantity) and content.defined:
        form = content.form(cell.form)
        parts = [form(content.value), error_text(cell, content), form.interval(content.low, content.high)]
    return " ".join(part for part in (*parts, cell.note, cell.below and f"({cell.below})") if part)


def to_markdown(table: Table, *, caption: bool = True) -> str:
    title = f"Table {table.number}: {table.title}" if table.number else table.title
    head = f"**{escape_markdown(title)}.** {escape_markdown(table.caption)}"
    head = head if title else f"**{escape_markdown(table.caption)}**"
    lines = [head, ""] if caption else []
    notes: list[str] = []
    for block in table.blocks:
        if block.title:
            lines += [f"*{escape_markdown(block.title)}*", ""]
        lines += _markdown_block(block, table.row_header, notes)
        lines.append("")
    lines += [f"<sup>{letter(k)}</sup> {escape_markdown(note)}.  " for k, note in enumerate(notes)]
    lines += [escape_markdown(table.note)] if table.note else []
    return "\n".join(lines).rstrip() + "\n"


def _markdown_block(block: Block, row_header: str, notes: list[str]) -> list[str]:
    heads = [row_header, *map(header_text, block.columns)]
    lines = ["| " + " | ".join(map(escape_markdown, heads)) + " |"]
    lines.append("|---|" + "".join("---|" if column.text else "---:|" for column in block.columns))
    for row in block.rows:
        cells = []
        for cell in row.cells:
            text = escape_markdown(cell_text(cell))
            text = text.replace(" ", "\N{NO-BREAK SPACE}") if isinstance(cell.content, Quantity) else text
            text += "".join(f"<sup>{letter}</sup>" for letter in footnote(cell, notes))
            cells.append(f"**{text}**" if cell.emphasis == "best" else text)
        label = escape_markdown(row.label)
        lines.append(f"| {f'*{label}*' if row.control else label} | " + " | ".join(cells) + " |")
    return lines


def to_csv(table: Table) -> bytes:
    """Return a table in long form with all digits: one line per cell, led by the facts of table and column."""
    facts = list(table.facts)
    own = list(dict.fromkeys(key for block in table.blocks for column in block.columns for key in column.facts))
    own = [key for key in own if key not in facts]
    header = ["table", *facts, (table.row_header or "row").lower(), *own, "direction", "value"]
    header += ["standard_error", "low", "high", "runs", "best", "why"]
    rows = []
    for block in table.blocks:
        for row in block.rows:
            for cell, column in zip(row.cells, block.columns, strict=True):
                known = {**table.facts, **column.facts}
                content = cell.content
                parts: list[object] = [content, "", "", ""]
                if isinstance(content, Quantity):
                    parts = [content.value, content.error, content.low, content.high]
                lead = [table.name, *(known[key] for key in facts), row.label, *(known.get(k, "") for k in own)]
                rest = [cell.runs, int(cell.emphasis == "best"), cell.why]
                rows.append([*lead, column.direction, *parts, *rest])
    return csv_bytes(header, rows)


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return rows as CSV; floats with all digits, None and numbers that are not finite as empty fields."""

    def field(value: object) -> object:
        if not isinstance(value, float):
            return "" if value is None else value
        return float(value) if math.isfinite(value) else ""  # CSV writes its own floats with all digits

    return csv_text([header, *(list(map(field, row)) for row in rows)]).encode()


def error_text(cell: Cell, content: Quantity) -> str:
    return f"± {content.error_form(cell.form)(content.error)}" if math.isfinite(content.error) else ""


def escape_markdown(text: str) -> str:
    """Escape what Markdown or HTML would read as more than text; line breaks become spaces."""
    safe = visible(re.sub(r"[\r\n\t\v\f ]+", " ", text).strip(" "))
    safe = safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", safe)


def header_text(column: Column, between: str = ": ") -> str:
    return f"{column.group}{between}{column.header}" if column.group else column.header


def footnote(cell: Cell, notes: list[str]) -> list[str]:
    """Return the letter of the footnote of an undefined cell; equal reasons share one."""
    if cell.defined or not cell.why:
        return []
    if cell.why not in notes:
        notes.append(cell.why)
    return [letter(notes.index(cell.why))]


def letter(k: int) -> str:
    return chr(ord("a") + k) if k < 26 else letter(k // 26 - 1) + letter(k % 26)


def to_terminal(table: Table) -> Group:
    """Return caption, table and note for the terminal; intervals and standard errors stand below their numbers."""
    parts = (table.caption and Text(table.caption, "bold"), _Fitted(table), table.note and Text(table.note))
    return Group(*(part for part in parts if part))


def to_text(table: Table, width: int = 100) -> str:
    """Return what a terminal of that width shows, without its colours."""
    console = Console(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip()


@dataclass(frozen=True)
class _Fitted:
    """The table as the width of the console allows."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        drawn, unlimited = _columns(self.table), options.update(max_width=10_000)
        most = [
            max(Measurement.get(console, unlimited, part).maximum for part in (column.header, *column.cells))
            for column in drawn.columns
        ]
        least = [column.min_width or 0 for column in drawn.columns]
        between = Measurement.get(console, unlimited, drawn).maximum - sum(most)
        spare, wanted = options.max_width - between - sum(least), sum(most) - sum(least)
        for column, low, high in zip(drawn.columns, least, most, strict=True):
            # Rich would take space from every column, also what its numbers need.
            column.width = high if spare >= wanted else low + (high - low) * spare // wanted
        yield drawn if spare >= 0 else _stacked(self.table)


def _stacked(table: Table) -> Group:
    lines: list[RenderableType] = []
    for block in table.blocks:
        lines += [Text(block.title, "bold")] if block.title else []
        for row in block.rows:
            lines.append(Text(row.label, "dim" if row.control else ""))
            for column, cell in zip(block.columns, row.cells, strict=True):
                text = cell_text(cell)
                header = " ".join(header_text(column).split())
                lines += [Padding(Text(f"{header}: {text}"), (0, 0, 0, 2), expand=False)] if text else []
    return Group(*lines)


def _columns(table: Table) -> rich_table.Table:
    padding = (0, 1) if table.width < 8 else 0  # eight narrow columns fit 80 characters
    drawn = rich_table.Table(header_style="bold", box=box.SIMPLE_HEAD, pad_edge=False, padding=padding)
    labels = [table.row_header, *(row.label for block in table.blocks for row in block.rows)]
    longest = max((len(word) for label in labels for word in label.split()), default=0)
    drawn.add_column(escape_rich(table.row_header), min_width=min(longest, NARROWEST_LABEL), overflow="fold")
    for k, column in enumerate(table.blocks[0].columns if table.blocks else []):
        header = header_text(column, "\n")
        cells = [row.cells[k] for block in table.blocks for row in block.rows]
        # Headers and text may be broken between their words, numbers never.
        parts = re.split(r"[ \n]", header)
        for cell in cells if not column.text else []:
            shown = Text.from_markup(_cell(cell)).plain
            parts += shown.split() if isinstance(cell.content, str) else shown.splitlines()
        drawn.add_column(
            escape_rich(header),
            justify="left" if column.text else "right",
            min_width=max(map(len, parts)),
            overflow="fold",
        )
    for number, block in enumerate(table.blocks):
        if number:
            drawn.add_section()
        if block.title:
            drawn.add_row(f"[bold]{escape_rich(block.title)}[/bold]", *[""] * len(block.columns))
        for row in block.rows:
            if row.rule:
                drawn.add_section()
            drawn.add_row(escape_rich(row.label), *map(_cell, row.cells), style="dim" if row.control else None)
    return drawn


def _cell(cell: Cell) -> str:
    content, below = cell.content, ""
    text = content if isinstance(content, str) else DASH
    if isinstance(content, Quantity) and content.defined:
        text, below = content.form(cell.form)(content.value), _interval(cell, content)
    small = "\n".join(part for part in (below, cell.below) if part)
    text = escape_rich(" ".join(part for part in (text, cell.note) if part))
    text = f"[bold]{text}[/bold]" if cell.emphasis == "best" else text
    return f"{text}\n[dim]{escape_rich(small)}[/dim]" if small else text


def _interval(cell: Cell, content: Quantity) -> str:
    """Return the interval in as few characters as possible, and `± error` on a line of its own."""
    interval = ""
    if content.bounded:
        form = content.form(cell.form)
        low, high = form(content.low), form(content.high)
        interval = f"{low}–{high}" if not low.startswith(("+", MINUS)) else f"{low} … {high}"
    return "\n".join(part for part in (interval, error_text(cell, content)) if part)


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: `1 image`, `1,200 images`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def quoted(name: str) -> Markup:
    return Markup("“{}”").format(name)


def _form(digits: int = 2, style: str = "plain") -> NumberFormat:
    return PERCENT if style == "percent" else NumberFormat(digits, signed=style == "signed")


FILTERS: dict[str, Callable[..., Any]] = {
    "table": to_html,
    "markdown_table": to_markdown,
    "number": lambda quantity, **form: quantity.html(_form(**form)),
    "whole": lambda quantity, **form: quantity.whole_html(_form(**form)),
    "plain": plain,
    "percent": percent,
    "count": COUNT,
    "counted": counted,
    "join_names": join_names,
    "quoted": quoted,
    "capitalise": capitalise,
    "md": escape_markdown,
}


def macros(template: str, *, package: str = TOOLKIT) -> Any:
    """Return the macros of a template as attributes: `macros("findings.html.j2").shift(facts)` returns `Markup`."""
    return templates(package).get_template(template).module


@cache
def templates(package: str) -> Environment:
    """Return the templates of a package, and those of the toolkit that it uses; everything is escaped, and a missing name is an error."""

    def load(name: str) -> str | None:
        return template_source(package, name) or template_source(TOOLKIT, name)

    compiled = os.path.dirname(cache_from_source(__file__))  # where Python keeps compiled modules, if it may
    keeps = os.access(compiled, os.W_OK) and not sys.dont_write_bytecode
    environment = Environment(
        loader=FunctionLoader(load),
        bytecode_cache=FileSystemBytecodeCache(compiled) if keeps else None,
        autoescape=select_autoescape(enabled_extensions=("html.j2",), default=False),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    return environment


@cache
def template_source(package: str, name: str) -> str | None:
    file = files(package) / "templates" / name
    return file.read_text("utf-8") if file.is_file() else None
