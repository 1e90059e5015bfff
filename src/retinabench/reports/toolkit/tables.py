"""The one table model: what a table holds, before it is written as HTML, Markdown, CSV, LaTeX or for a terminal.

A `Table` has one or more `Block`s; a block has `Column`s and `Row`s; a row has a label and one `Cell` per column. A cell
holds a number with its interval and standard error (`Quantity`) or text. `renderers.py` writes a table:

    table = Table.of("Scores", [Column("AUROC", direction="higher")], [Row("MAP", [Cell.number(0.91, 0.88, 0.94)])])
    to_terminal(table)      # a rich table
    to_markdown(table)
    to_html(table)          # escaped; in page templates: {{ table | table }}
    to_latex(table)
    to_csv(table)           # one line per cell, with all digits
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from retinabench.reports.toolkit.number_format import THREE_DIGITS, NumberFormat, Place, Quantity

ARROWS = {"higher": "↑", "lower": "↓", "": ""}
Direction = Literal["higher", "lower", ""]
Emphasis = Literal["", "best", "good", "bad"]


@dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        label: The header.
        group: What stands above several neighbouring columns.
        direction: Which way is better; written as an arrow behind the label.
        text: The column holds text: aligned left, and broken into lines where it is long.
        facts: What the column is about (for example its set and score), as further columns of the CSV.
    """

    label: str
    group: str = ""
    direction: Direction = ""
    text: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def header(self) -> str:
        """The label with the arrow of its direction."""
        return f"{self.label}\N{NO-BREAK SPACE}{ARROWS[self.direction]}" if self.direction else self.label


@dataclass(frozen=True)
class Cell:
    """A number with its interval and standard error, or text.

    Attributes:
        content: The number, or text.
        form: How the number is written.
        emphasis: "best" is bold; "good" and "bad" are coloured.
        note: A word behind the number.
        below: A short remark in small print below the content.
        why: Why a number is undefined; a footnote in Markdown and LaTeX, small print in HTML.
        runs: Number of runs that the number is the mean of.
    """

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
        form: NumberFormat | None = None,
        place: Place | None = None,
        emphasis: Emphasis = "",
        note: str = "",
        below: str = "",
        why: str = "",
        runs: int = 1,
    ) -> Cell:
        """Return a cell of a number."""
        a, b, c, d = (math.nan if part is None else float(part) for part in (value, low, high, error))
        form = THREE_DIGITS if form is None else form
        return cls(Quantity(a, b, c, d, place), form, emphasis, note, below, why, runs)

    @property
    def defined(self) -> bool:
        """Whether the cell holds text or a finite number."""
        return isinstance(self.content, str) or self.content.defined


UNDEFINED = Cell("–")
"""A cell without content."""


@dataclass(frozen=True)
class Row:
    """A row: its label and one cell per column.

    Attributes:
        label: The row's header, for example the name of a method.
        cells: One per column of the block.
        control: The row is a reference rather than an entry: muted.
        rule: A line is drawn above the row.
    """

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
    """A table.

    Attributes:
        caption: What the table shows.
        blocks: Groups of rows; most tables have one.
        row_header: Header of the column of row labels.
        note: A remark below the table.
        name: Name of its files and of its LaTeX label.
        title: A short name before the caption; with `number` in Markdown and LaTeX.
        number: Number in a paper, "" where it has none.
        facts: What the table is about, as the first columns of the CSV.
    """

    caption: str
    blocks: Sequence[Block]
    row_header: str = ""
    note: str = ""
    name: str = ""
    title: str = ""
    number: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        caption: str,
        columns: Sequence[Column],
        rows: Sequence[Row],
        *,
        row_header: str = "",
        note: str = "",
        name: str = "",
    ) -> Table:
        """Return a table of one block."""
        return cls(caption, [Block(columns, rows)], row_header, note, name)

    @property
    def width(self) -> int:
        """Number of columns of the widest block, without the labels."""
        return max((len(block.columns) for block in self.blocks), default=0)
