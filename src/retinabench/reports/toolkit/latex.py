"""A table as LaTeX, with `booktabs`: what `report --tables` writes for a paper."""

from __future__ import annotations

import re
from itertools import groupby

from retinabench.core.errors import visible
from retinabench.reports.toolkit.tables import Block, Row, Table, cell_text, footnote, letter

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$",
    "—": "---", "–": "--", "−": "$-$", "<": r"\textless{}", ">": r"\textgreater{}", "\N{NO-BREAK SPACE}": "~",
}  # fmt: skip


def to_latex(table: Table) -> str:
    width, notes = table.width, list[str]()
    body: list[str] = []
    previous: list[tuple[str, str]] | None = None
    for block in table.blocks:
        heads = [(column.group, column.header) for column in block.columns]
        body += [] if previous is None else [r"\midrule"]
        body += [] if heads == previous else _latex_head(block, table.row_header, width)
        previous = heads
        if block.title:
            title = escape_latex(block.title)
            body.append(rf"\multicolumn{{{width + 1}}}{{l}}{{\textit{{{title}}}}} \\")
        for row in block.rows:
            body += [r"\addlinespace"] if row.rule else []
            body.append(_latex_row(row, width, notes))
    size = [r"\small"] if width <= 6 else [r"\scriptsize", r"\setlength{\tabcolsep}{3pt}"]
    remarks = [
        rf"\\ \footnotesize \textsuperscript{{{letter(k)}}} {escape_latex(note)}." for k, note in enumerate(notes)
    ]
    remarks += [rf"\\ \footnotesize {escape_latex(table.note)}"] if table.note else []
    caption = " ".join(escape_latex(part) for part in (table.title and f"{table.title}.", table.caption) if part)
    return "\n".join(
        [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}", rf"\label{{tab:{table.name}}}", *size,
         rf"\begin{{tabular}}{{l{'r' * width}}}", r"\toprule", *body, r"\bottomrule", r"\end{tabular}",
         *remarks, r"\end{table}", ""]
    )  # fmt: skip


def _latex_head(block: Block, row_header: str, width: int) -> list[str]:
    groups = [(name, len(list(columns))) for name, columns in groupby(block.columns, lambda one: one.group)]
    lines = []
    if any(name for name, _ in groups):
        spans = [rf"\multicolumn{{{count}}}{{c}}{{{escape_latex(name)}}}" for name, count in groups]
        lines.append(" & ".join(["", *spans]) + r" \\")
        rules, start = "", 2
        for _, count in groups:
            rules += rf"\cmidrule(lr){{{start}-{start + count - 1}}}"
            start += count
        lines.append(rules)
    labels = [escape_latex(column.header) for column in block.columns]
    empty = [""] * (width - len(labels))
    return [*lines, " & ".join([escape_latex(row_header), *labels, *empty]) + r" \\", r"\midrule"]


def _latex_row(row: Row, width: int, notes: list[str]) -> str:
    cells = []
    for cell in row.cells:
        marks = "".join(rf"\textsuperscript{{{letter}}}" for letter in footnote(cell, notes))
        text = escape_latex(cell_text(cell)) + marks
        cells.append(rf"\textbf{{{text}}}" if cell.emphasis == "best" else text)
    label = escape_latex(row.label)
    if label.startswith(("[", "*")):  # after the end of a line these would be its options
        label = "{}" + label
    return " & ".join([label, *cells, *[""] * (width - len(cells))]) + r" \\"


def escape_latex(text: str) -> str:
    """Escape what LaTeX would read as more than text; other alphabets are left to the document's fonts."""
    return "".join(_LATEX.get(one, one) for one in visible(re.sub(r"[\r\n\t ]+", " ", text).strip(" ")))
