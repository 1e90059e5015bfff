"""A table as Markdown, CSV and LaTeX. Whatever a file calls its method is escaped."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence

from retinabench.reports.papers.layout import Block, Cell, Column, Table, number

DASH = "—"
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "↑": r"$\uparrow$", "↓": r"$\downarrow$",
    "—": "---", "–": "--", "−": "$-$", "<": r"\textless{}", ">": r"\textgreater{}", "\N{NO-BREAK SPACE}": "~",
}  # fmt: skip


def markdown(table: Table) -> str:
    """Return a table with caption and footnotes; one Markdown table per header."""
    lines = [f"**{_heading(table)}.** {escape(table.caption)}", ""]
    notes: list[str] = []
    for block in table.blocks:
        if block.title:
            lines += [f"*{escape(block.title)}*", ""]
        heads = [f"{column.group}: {column.label} {column.spec.arrow}" for column in block.columns]
        lines.append("| Method | " + " | ".join(escape(head) for head in heads) + " |")
        lines.append("|---|" + "---:|" * len(heads))
        for row in block.rows:
            cells = []
            for cell, column in zip(row.cells, block.columns, strict=True):
                text = written(cell, column.percent).replace(" ", "\N{NO-BREAK SPACE}")
                text += "".join(f"<sup>{mark}</sup>" for mark in _mark(cell, notes))
                cells.append(f"**{text}**" if cell.best else text)
            lines.append(f"| {escape(row.label)} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += [f"<sup>{_letter(k)}</sup> {escape(note)}.  " for k, note in enumerate(notes)]
    return "\n".join(lines).rstrip() + "\n"


def csv_bytes(table: Table) -> bytes:
    """Return a table in long form, one row per cell, with all digits."""
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerow(
        [
            "table",
            "task",
            "criterion",
            "method",
            "set",
            "score",
            "direction",
            "mean",
            "standard_error",
            "low",
            "high",
            "runs",
            "best",
            "why",
        ]
    )
    for block in table.blocks:
        for row in block.rows:
            for cell, column in zip(row.cells, block.columns, strict=True):
                numbers = [
                    repr(v) if math.isfinite(v) else ""
                    for v in map(float, (cell.value, cell.error, cell.low, cell.high))
                ]
                about = [table.name, column.task or table.task, column.criterion or table.criterion]
                writer.writerow(
                    [
                        *about,
                        row.label,
                        column.set,
                        column.score,
                        column.spec.direction,
                        *numbers,
                        cell.runs,
                        int(cell.best),
                        cell.why,
                    ]
                )
    return sink.getvalue().encode()


def latex(table: Table) -> str:
    r"""Return a `table` environment; the document needs \usepackage{booktabs}."""
    width = max(len(block.columns) for block in table.blocks)
    notes: list[str] = []
    body: list[str] = []
    for k, block in enumerate(table.blocks):
        body += _latex_head(
            block, width, first=k == 0, same=k > 0 and _heads(block) == _heads(table.blocks[k - 1])
        )
        for row in block.rows:
            if row.rule:
                body.append(r"\addlinespace")
            cells = []
            for cell, column in zip(row.cells, block.columns, strict=True):
                text = tex(written(cell, column.percent)) + "".join(
                    rf"\textsuperscript{{{m}}}" for m in _mark(cell, notes)
                )
                cells.append(rf"\textbf{{{text}}}" if cell.best else text)
            cells += [""] * (width - len(cells))
            label = tex(row.label)
            if label.startswith(("[", "*")):  # after a line's end these would be its options
                label = "{}" + label
            body.append(" & ".join([label, *cells]) + r" \\")
    size = [r"\small"] if width <= 6 else [r"\scriptsize", r"\setlength{\tabcolsep}{3pt}"]
    legend = [
        rf"\\ \footnotesize \textsuperscript{{{_letter(k)}}} {tex(note)}." for k, note in enumerate(notes)
    ]
    return "\n".join(
        [r"\begin{table}", r"\centering", rf"\caption{{{tex(table.title)}. {tex(table.caption)}}}",
         rf"\label{{tab:{table.name}}}", *size, rf"\begin{{tabular}}{{l{'r' * width}}}", r"\toprule",
         *body, r"\bottomrule", r"\end{tabular}", *legend, r"\end{table}", ""]
    )  # fmt: skip


def _latex_head(block: Block, width: int, *, first: bool, same: bool) -> list[str]:
    lines = [] if first else [r"\midrule"]
    if not same:
        spans, start = [], 2
        for group, count in _groups(block.columns):
            spans.append((tex(group), start, count))
            start += count
        lines.append(
            " & ".join(["", *(rf"\multicolumn{{{n}}}{{c}}{{{group}}}" for group, _, n in spans)]) + r" \\"
        )
        lines.append("".join(rf"\cmidrule(lr){{{start}-{start + n - 1}}}" for _, start, n in spans))
        labels = [tex(f"{column.label} {column.spec.arrow}") for column in block.columns]
        lines += [" & ".join(["Method", *labels, *[""] * (width - len(labels))]) + r" \\", r"\midrule"]
    if block.title:
        lines.append(rf"\multicolumn{{{width + 1}}}{{l}}{{\textit{{{tex(block.title)}}}}} \\")
    return lines


def _heads(block: Block) -> list[tuple[str, str]]:
    return [(column.group, column.label) for column in block.columns]


def _groups(columns: Sequence[Column]) -> list[tuple[str, int]]:
    """Neighbouring columns of one group, with their number."""
    found: list[tuple[str, int]] = []
    for column in columns:
        if found and found[-1][0] == column.group:
            found[-1] = (column.group, found[-1][1] + 1)
        else:
            found.append((column.group, 1))
    return found


def written(cell: Cell, percent: bool) -> str:
    """Write a cell: `91.3 ± 0.2`, `91.3 [90.1, 92.4]`, `91.3`, or a dash."""
    if not math.isfinite(cell.value):
        return DASH
    text = number(cell.value, percent)
    if math.isfinite(cell.error):
        return f"{text} ± {number(cell.error, percent)}"
    if math.isfinite(cell.low) and math.isfinite(cell.high):
        return f"{text} [{number(cell.low, percent)}, {number(cell.high, percent)}]"
    return text


def _mark(cell: Cell, notes: list[str]) -> list[str]:
    """The footnote letter of an undefined cell; equal reasons share one."""
    if math.isfinite(cell.value):
        return []
    why = cell.why or "undefined"
    if why not in notes:
        notes.append(why)
    return [_letter(notes.index(why))]


def _letter(k: int) -> str:
    return chr(ord("a") + k) if k < 26 else _letter(k // 26 - 1) + _letter(k % 26)


def _heading(table: Table) -> str:
    return escape(f"Table {table.number}: {table.title}" if table.number else table.title)


def escape(text: str) -> str:
    """Escape what Markdown or HTML would read as more than text."""
    safe = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", safe)


def tex(text: str) -> str:
    """Escape what LaTeX would read as more than text; other alphabets are left to the document's fonts."""
    return "".join(LATEX.get(character, character) for character in " ".join(text.split()))
