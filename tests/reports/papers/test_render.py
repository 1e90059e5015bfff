"""Tables as text: nothing that a file says is taken for markup, and the numbers come back."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pytest

from retinabench.reports.papers.layout import Block, Cell, Column, Row, Table, number
from retinabench.reports.papers.render import csv_bytes, latex, markdown, tex, written

HOSTILE = r"a|b_c*d $x^2$ 50%&#{e}~\f <script>alert(1)</script> [l](javascript:0) `code`"
COLUMNS = [
    Column("in_domain", "auroc", "AUROC (%)", "In-domain"),
    Column("shifted", "auroc", "AUROC (%)", "Shifted"),
    Column("joint", "nll", "NLL", "Joint", "lower", False),
]


def table(name: str = "MAP") -> Table:
    cells = [
        Cell(0.91234, 0.00456, runs=6, best=True),
        Cell(np.nan, why="needs | both classes"),
        Cell(0.5, low=0.25, high=0.75),
    ]
    rows = [
        Row(name, cells),
        Row("other", [Cell(0.9), Cell(np.nan, why="needs | both classes"), Cell(-0.0001, 0.1)], rule=True),
    ]
    wide = Block(HOSTILE, COLUMNS, rows)
    narrow = Block("", COLUMNS[:2], [Row(name, cells[:2])])
    return Table(
        "table-01", "1", HOSTILE, "A caption.", [wide, wide, narrow], "country_shift", "in_domain_auroc"
    )


@pytest.mark.parametrize(
    ("cell", "percent", "text"),
    [
        (Cell(0.91234, 0.00456), True, "91.2 ± 0.5"),
        (Cell(0.91234, low=0.9, high=0.95), True, "91.2 [90.0, 95.0]"),
        (Cell(0.91234), False, "0.912"),
        (Cell(np.nan), True, "—"),
        (Cell(-0.00001), False, "0.000"),
        (Cell(-0.5, 0.1), False, "-0.500 ± 0.100"),
    ],
)
def test_cells(cell, percent, text):
    assert written(cell, percent) == text


def test_numbers():
    assert (number(1.0, True), number(0.0, False), number(-0.0004, True)) == ("100.0", "0.000", "0.0")


def test_markdown_keeps_its_columns_and_its_page():
    lines = markdown(table(HOSTILE)).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    counts = [len(re.findall(r"(?<!\\)\|", row)) for row in rows]
    assert counts == [5] * 8 + [4] * 3
    text = "\n".join(lines)
    assert "<script" not in text
    assert "](javascript" not in re.sub(r"\\.", "", text)
    assert "**91.2 ± 0.5**" in text.replace("\N{NO-BREAK SPACE}", " ")
    assert text.count("<sup>a</sup>") == 6  # five cells share one note
    assert text.rstrip().endswith(r"<sup>a</sup> needs \| both classes.")


def test_latex_is_balanced_and_every_row_is_as_wide():
    text = latex(table(HOSTILE))
    plain = re.sub(r"\\[\\{}&%$#_]", "", text)  # without escaped characters
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert not re.search(r"(?<!\\)[%#_]", text.replace(r"\\", "").replace("tab:table-01", ""))
    body = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 11  # two headers of two lines, two titles, five methods
    for row in rows:
        spans = [int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", row)]
        assert len(re.findall(r"(?<!\\)&", row)) + sum(spans) <= 3
    assert r"\textbf{91.2 $\pm$ 0.5}" in text
    for word in (
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
        r"\cmidrule(lr){2-3}",
        r"\addlinespace",
        r"\caption{",
    ):
        assert word in text


def test_latex_escapes():
    assert tex(r"50% & $x_1$ {a}~^\#") == (
        r"50\% \& \$x\_1\$ \{a\}\textasciitilde{}\textasciicircum{}\textbackslash{}\#"
    )


def test_a_latex_row_does_not_begin_with_an_option():
    assert "\n{}[2cm] & " in latex(table("[2cm]"))
    assert "\n{}* & " in latex(table("*"))


def test_csv_comes_back():
    rows = list(csv.DictReader(io.StringIO(csv_bytes(table(HOSTILE)).decode())))
    assert len(rows) == 14
    first = rows[0]
    assert first["method"] == HOSTILE
    assert float(first["mean"]) == 0.91234
    assert float(first["standard_error"]) == 0.00456
    assert (first["runs"], first["best"], first["low"]) == ("6", "1", "")
    assert (rows[1]["mean"], rows[1]["why"]) == ("", "needs | both classes")
    assert (float(rows[2]["low"]), float(rows[2]["high"])) == (0.25, 0.75)
    assert (first["table"], first["task"], first["criterion"]) == (
        "table-01",
        "country_shift",
        "in_domain_auroc",
    )
