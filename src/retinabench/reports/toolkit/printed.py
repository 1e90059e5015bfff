"""Numbers that others printed, or that were recorded once (`printed.toml`): shown beside what is computed here, never ranked."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from retinabench.reports.toolkit.tables import Cell, Column, Row, Table

FILE = Path(__file__).with_name("printed.toml")


class PrintedColumn(NamedTuple):
    """A column: a cell times its scale is in the unit of the measure."""

    label: str
    direction: Any
    measure: str
    scale: float


@dataclass(frozen=True)
class PrintedTable:
    """A table as it was printed; `task`, `group` and `tier` say beside which entries of a fidelity board it stands."""

    name: str
    source: str
    columns: tuple[PrintedColumn, ...]
    rows: Mapping[str, tuple[str, ...]]
    number: str = ""
    caption: str = ""
    note: str = ""
    task: str = ""
    group: str = ""
    tier: int | None = None

    def values(self, row: str) -> dict[str, tuple[float, float]]:
        """Return value and error of a row by measure, in its unit; the error is NaN where none was printed."""
        found = {}
        for column, cell in zip(self.columns, self.rows[row], strict=True):
            if column.measure and cell:
                value, _, error = cell.partition(" ± ")
                found[column.measure] = (
                    column.scale * float(value), column.scale * float(error) if error else math.nan
                )  # fmt: skip
        return found

    def table(self) -> Table:
        columns = [Column(column.label, direction=column.direction) for column in self.columns]
        rows = [Row(name, [Cell(text or "–") for text in cells]) for name, cells in self.rows.items()]
        number = f", Table {self.number}" if self.number else ""
        caption = f"{self.source}{number}, printed: {self.caption}"
        return Table.of(caption, columns, rows, row_header="method", note=self.note)


@cache
def printed_tables() -> dict[str, PrintedTable]:
    found = {}
    for name, content in tomllib.loads(FILE.read_text("utf-8")).items():
        columns = tuple(PrintedColumn(*column) for column in content.pop("columns"))
        rows = {row: tuple(cells) for row, cells in content.pop("rows").items()}
        found[name] = PrintedTable(name, columns=columns, rows=rows, **content)
    return found
