"""What a table is before it is written as Markdown, CSV or LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retinabench.metrics.registry import SCORES, ScoreSpec


@dataclass(frozen=True)
class Column:
    """One column of numbers: a score of a set, its header, and how it is written.

    group: what stands above several columns. percent: multiplied by 100, one digit; else three digits. task, criterion:
    where they are not the table's.
    """

    set: str
    score: str
    group: str
    label: str
    percent: bool = True
    task: str = ""
    criterion: str = ""

    @property
    def spec(self) -> ScoreSpec:
        """The score, with its direction."""
        return SCORES[self.score]


@dataclass(frozen=True)
class Cell:
    """A number with its spread: `error` over runs, or `low` and `high` of a single one; NaN where there is none.

    best: written in bold. why: why the value is undefined.
    """

    value: float
    error: float = np.nan
    low: float = np.nan
    high: float = np.nan
    runs: int = 1
    best: bool = False
    why: str = ""


@dataclass(frozen=True)
class Row:
    """One method: its name and a cell per column. rule: whether a line is drawn above it."""

    label: str
    cells: Sequence[Cell]
    rule: bool = False


@dataclass(frozen=True)
class Block:
    """Rows below one header."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]


@dataclass(frozen=True)
class Table:
    """A table: `name` of its files, its `number` in the paper ("" if it is not there), title, caption and blocks."""

    name: str
    number: str
    title: str
    caption: str
    blocks: Sequence[Block]
    task: str = ""
    criterion: str = ""


def number(value: float, percent: bool) -> str:
    """Write a number: percent with one digit, others with three."""
    text = f"{100 * value:.1f}" if percent else f"{value:.3f}"
    return text[1:] if text.startswith("-") and float(text) == 0 else text
