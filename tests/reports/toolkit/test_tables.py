"""The table model: what a cell, a column and a table are."""

from __future__ import annotations

import math

from retinabench.reports.toolkit.number_format import Place
from retinabench.reports.toolkit.tables import UNDEFINED, Block, Cell, Column, Row, Table


def test_a_column_has_an_arrow_for_its_direction():
    assert Column("AUROC", direction="higher").header == "AUROC\N{NO-BREAK SPACE}↑"
    assert Column("NLL", direction="lower").header == "NLL\N{NO-BREAK SPACE}↓"
    assert Column("Images").header == "Images"


def test_a_number_without_interval_or_value_is_undefined_there():
    place = Place("m", "in_domain", "auroc")
    cell = Cell.number(0.9, 0.8, error=0.05, place=place, runs=3)
    number = cell.content
    assert (number.value, number.low, number.error, number.place) == (0.9, 0.8, 0.05, place)
    assert math.isnan(number.high)
    assert cell.defined
    assert cell.runs == 3
    assert not Cell.number(None, why="one class").defined
    assert not Cell.number(math.nan).defined


def test_text_is_defined_whatever_it_says():
    assert Cell("").defined
    assert UNDEFINED.content == "–"


def test_a_table_is_as_wide_as_its_widest_block():
    rows = [Row("a", [Cell("1")])]
    one = Block([Column("x")], rows)
    two = Block([Column("x"), Column("y")], [Row("a", [Cell("1"), Cell("2")])])
    assert Table("both", [one, two]).width == 2
    assert Table("none", []).width == 0
    made = Table.of("caption", [Column("x")], rows, row_header="Method", note="a note", name="file")
    assert (made.caption, made.row_header, made.note, made.name) == ("caption", "Method", "a note", "file")
    assert [len(block.rows) for block in made.blocks] == [1]
