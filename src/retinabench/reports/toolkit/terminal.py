"""A table (`tables.py`) for the terminal: in columns where they fit, else one number per line; no cell is ever cut."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rich import box
from rich import table as rich_table
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape as escape_rich
from rich.measure import Measurement
from rich.padding import Padding
from rich.text import Text

from retinabench.reports.toolkit.number_format import DASH, MINUS, Quantity
from retinabench.reports.toolkit.renderers import cell_text, error_text, header_text
from retinabench.reports.toolkit.tables import Cell, Table

NARROWEST_LABEL = 12
"""Labels of rows are broken into lines of at least this many characters before the columns are given up."""


def to_terminal(table: Table) -> Group:
    """Return caption, table and note for the terminal; intervals and standard errors stand below their numbers."""
    parts: tuple[RenderableType, ...] = (
        table.caption and Text(table.caption, "bold"),
        _Fitted(table),
        table.note and Text(table.note),
    )
    return Group(*(part for part in parts if part))


@dataclass(frozen=True)
class _Fitted:
    """The table as the width of the console allows."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        drawn = _columns(self.table)
        least = Measurement.get(console, options.update(max_width=10_000), drawn).minimum
        words = [len(word) for block in self.table.blocks for row in block.rows for word in row.label.split()]
        longest = max(words, default=0)
        fits = least - longest + min(longest, NARROWEST_LABEL) <= options.max_width
        yield drawn if fits else _stacked(self.table)


def _stacked(table: Table) -> Group:
    """One line per number, for terminals that are too narrow for the columns."""
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
    drawn.add_column(escape_rich(table.row_header), overflow="fold")
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
            drawn.add_row(
                escape_rich(row.label), *map(_cell, row.cells), style="dim" if row.control else None
            )
    return drawn


def _cell(cell: Cell) -> str:
    content = cell.content
    if isinstance(content, str):
        text, below = content, ""
    elif not content.defined:
        text, below = DASH, ""
    else:
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
