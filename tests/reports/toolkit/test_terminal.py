"""Tables for the terminal: intervals below their numbers, nothing marked up, and no cell cut at any width."""

import io

import pytest
from rich.console import Console

from retinabench.reports.toolkit.tables import Cell, Column, Row, Table
from retinabench.reports.toolkit.terminal import to_terminal
from support.small_tables import example


def rendered(table: Table, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(to_terminal(table))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def wide() -> Table:
    columns = [Column(name) for name in ("sensitivity", "specificity", "precision", "accuracy", "share")]
    cells = [Cell.number(0.123456 + k / 10, 0.1 + k / 10, 0.15 + k / 10, 0.004) for k in range(5)]
    return Table.of("Many numbers", columns, [Row("a_rather_long_name_of_a_method.parquet", cells)])


def test_intervals_stand_below_and_nothing_is_marked_up() -> None:
    text = rendered(example(), 120)
    assert "0.90–0.95" in text
    assert "± 0.01" in text
    assert "[x](y)" in text


def test_interval_with_negative_ends() -> None:
    table = Table.of("x", [Column("a")], [Row("r", [Cell.number(-0.1, -0.2, 0.1)])])
    assert "−0.20 … 0.10" in rendered(table)


def test_interval_and_standard_error_are_both_shown() -> None:
    text = rendered(wide(), 120)
    assert "0.10–0.15" in text
    assert text.count("± 0.004") == 5


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 100])
def test_no_cell_is_cut_at_any_width(width: int) -> None:
    text = rendered(wide(), width)
    assert "…" not in text.replace(" … ", "")
    assert max(map(len, text.splitlines())) <= width
    squeezed = "".join(text.split())
    for k in range(5):
        assert f"{0.123456 + k / 10:.2f}" in squeezed
        assert f"{0.15 + k / 10:.2f}" in squeezed
    for word in ("sensitivity", "specificity", "precision", "accuracy", "share"):
        assert word in text


def test_a_narrow_terminal_gets_one_number_per_line() -> None:
    assert "  sensitivity: 0.12 ± 0.004 [0.10, 0.15]" in rendered(wide(), 50)
