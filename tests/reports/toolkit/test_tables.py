import csv
import io
import math
import re

import pytest

from retinabench.reports.toolkit import tables
from retinabench.reports.toolkit.latex import to_latex
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table, cell_text, to_markdown, to_terminal
from support.reading_pages import printed

HOSTILE = "<b>|*_ [x](y) $a$ & 50 %"


def example() -> Table:
    columns = [
        Column("AUROC", "In-domain", "higher", facts={"set": "in_domain", "score": "auroc"}),
        Column("NLL", "In-domain", "lower", facts={"set": "in_domain", "score": "nll"}),
    ]
    place = tables.Place("MAP", "in_domain", "auroc")
    rows = [
        Row(
            "MAP",
            [Cell.number(0.912345, 0.9, 0.95, place=place, emphasis="best"), Cell.number(0.25, error=0.01, runs=3)],
        ),
        Row(HOSTILE, [Cell.number(None, why="one class only"), Cell("-0.5 as text")], rule=True),
    ]
    return Table(
        "What it shows.", [tables.Block(columns, rows, "One set")], "Method", "A note.", "scores", "Scores", "4",
        {"task": "drawn"},
    )  # fmt: skip


def test_cell_on_one_line() -> None:
    assert cell_text(Cell.number(0.9123, 0.9, 0.95)) == "0.91 [0.90, 0.95]"
    assert cell_text(Cell.number(0.9123, error=0.002)) == "0.912 ± 0.002"
    assert cell_text(Cell.number(-0.25, form=tables.NumberFormat(1, scale=100))) == "−25.0"
    assert cell_text(Cell.number(math.nan)) == "–"
    assert cell_text(Cell.number(3, form=tables.NumberFormat(0), below="over 2")) == "3 (over 2)"


def test_html_is_escaped_and_carries_exact_values() -> None:
    page = tables.to_html(example())
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert 'data-entry="MAP" data-set="in_domain" data-score="auroc" data-part="value" data-value="0.912345"' in page
    assert '<span class="best">' in page
    assert "one class only" in page
    assert page.count("<tr") == page.count("</tr>") == 4


def test_markdown_has_a_line_per_row_footnotes_and_note() -> None:
    lines = to_markdown(example()).splitlines()
    assert lines[0] == "**Table 4: Scores.** What it shows."
    assert "| Method | In-domain: AUROC\N{NO-BREAK SPACE}↑ | In-domain: NLL\N{NO-BREAK SPACE}↓ |" in lines
    row = next(line for line in lines if line.startswith("| MAP"))
    assert row.replace("\N{NO-BREAK SPACE}", " ") == r"| MAP | **0.91 \[0.90, 0.95\]** | 0.250 ± 0.010 |"
    assert "–<sup>a</sup>" in to_markdown(example())
    assert any(line.startswith("<sup>a</sup> one class only.") for line in lines)
    assert lines[-1] == "A note."
    hostile = next(line for line in lines if "50 %" in line)
    assert len(re.findall(r"(?<!\\)\|", hostile)) == 4


def test_latex_groups_columns_and_escapes() -> None:
    text = to_latex(example())
    assert r"\multicolumn{2}{c}{In-domain}" in text
    assert r"\cmidrule(lr){2-3}" in text
    assert r"\textbf{0.91 [0.90, 0.95]}" in text
    assert r"0.250 $\pm$ 0.010" in text
    assert r"\textless{}b\textgreater{}|*\_ [x](y) \$a\$ \& 50 \%" in text
    assert r"\textsuperscript{a}" in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 2


def test_latex_is_balanced_and_every_row_is_as_wide() -> None:
    text = to_latex(example())
    plain = re.sub(r"\\[\\{}&%$#_]", "", text)  # without escaped characters
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    body = text.partition(r"\toprule")[2].partition(r"\bottomrule")[0]
    for row in (line for line in body.splitlines() if line.endswith(r"\\")):
        spans = [int(n) - 1 for n in re.findall(r"\\multicolumn\{(\d+)\}", row)]
        assert len(re.findall(r"(?<!\\)&", row)) + sum(spans) == 2


def test_latex_label_that_begins_like_an_option() -> None:
    table = Table.of("x", [Column("a")], [Row("[0.5]", [Cell("1")])])
    assert "\n{}[0.5] & 1 \\\\" in to_latex(table)


def test_csv_has_a_line_per_cell_with_all_digits() -> None:
    rows = list(csv.DictReader(io.StringIO(tables.to_csv(example()).decode())))
    assert len(rows) == 4
    first = rows[0]
    assert (first["table"], first["task"], first["method"], first["score"]) == ("scores", "drawn", "MAP", "auroc")
    assert (first["value"], first["low"], first["best"]) == ("0.912345", "0.9", "1")
    assert (rows[1]["standard_error"], rows[1]["runs"], rows[1]["direction"]) == ("0.01", "3", "lower")
    assert (rows[2]["value"], rows[2]["why"]) == ("", "one class only")


def wide() -> Table:
    columns = [Column(name) for name in ("sensitivity", "specificity", "precision", "accuracy", "share", "budget")]
    cells = [Cell.number(0.123456 + k / 10, 0.1 + k / 10, 0.15 + k / 10, 0.004) for k in range(5)]
    names = "a_rather_long_name_of_a_method.parquet", "microcanonical Langevin"
    rows = [Row(name, [*cells, Cell("10,000 / 12,500")]) for name in names]
    return Table.of("Many numbers", columns, rows)


def test_intervals_stand_below_and_nothing_is_marked_up() -> None:
    text = printed(to_terminal(example()), 120)
    assert "0.90–0.95" in text
    assert "± 0.01" in text
    assert "[x](y)" in text


def test_interval_with_negative_ends() -> None:
    table = Table.of("x", [Column("a")], [Row("r", [Cell.number(-0.1, -0.2, 0.1)])])
    assert "−0.20 … 0.10" in printed(to_terminal(table))


@pytest.mark.parametrize("width", [20, 30, 40, 60, 80, 90, 100, 110])
def test_no_cell_is_cut_at_any_width(width: int) -> None:
    text = printed(to_terminal(wide()), width)
    assert "…" not in text.replace(" … ", "")
    assert max(map(len, text.splitlines())) <= width
    squeezed = "".join(text.split())
    for k in range(5):
        assert f"{0.123456 + k / 10:.2f}" in squeezed
        assert f"{0.15 + k / 10:.2f}" in squeezed
    for word in ("sensitivity", "specificity", "precision", "accuracy", "share", "budget", "12,500", "microcanonical"):
        assert word in text


def test_a_narrow_terminal_gets_one_number_per_line() -> None:
    assert "  sensitivity: 0.12 ± 0.004 [0.10, 0.15]" in printed(to_terminal(wide()), 50)
