"""A small table with everything that a table can hold, hostile names among it."""

from retinabench.reports.toolkit.tables import Block, Cell, Column, Place, Row, Table

HOSTILE = "<b>|*_ [x](y) $a$ & 50 %"


def example() -> Table:
    columns = [
        Column("AUROC", "In-domain", "higher", facts={"set": "in_domain", "score": "auroc"}),
        Column("NLL", "In-domain", "lower", facts={"set": "in_domain", "score": "nll"}),
    ]
    place = Place("MAP", "in_domain", "auroc")
    rows = [
        Row(
            "MAP",
            [Cell.number(0.912345, 0.9, 0.95, place=place, emphasis="best"), Cell.number(0.25, error=0.01, runs=3)],
        ),
        Row(HOSTILE, [Cell.number(None, why="one class only"), Cell("-0.5 as text")], rule=True),
    ]
    return Table(
        "What it shows.", [Block(columns, rows, "One set")], "Method", "A note.", "scores", "Scores", "4",
        {"task": "drawn"},
    )  # fmt: skip
