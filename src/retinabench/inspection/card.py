"""The data card of an inspected data set: a page that stands alone, and Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from retinabench.core.version import __version__
from retinabench.data.registry import DATASETS
from retinabench.inspection.card_tables import tables
from retinabench.inspection.examine import Inspection, findings
from retinabench.inspection.sheets import Cell, data_uri


@dataclass(frozen=True, eq=False)
class Shown:
    """Pictures that are shown together: the file of their sheet, its heading, the pictures."""

    file: str
    heading: str
    cells: Sequence[Cell]


def page(found: Inspection, shown: Sequence[Shown]) -> str:
    """Return the data card as HTML: no script, nothing from the network, every text escaped."""
    templates = files("retinabench.reports.toolkit") / "templates"
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    template = environment.from_string((templates / "inspection.html.j2").read_text("utf-8"))
    groups = [
        {
            "heading": one.heading,
            "file": one.file,
            "cards": [{"source": data_uri(cell.picture), "cell": cell} for cell in one.cells],
        }
        for one in shown
    ]
    of_class = f"sheet-{found.classes.noun}-"
    return template.render(
        style=Markup((templates / "style.css").read_text("utf-8")),
        title=f"Data set {found.data.name}",
        standfirst=_standfirst(found),
        findings=list(findings(found)),
        facts=_facts(found.data.name),
        tables=tables(found),
        problems=[group for group in groups if not str(group["file"]).startswith(of_class)],
        classes=[group for group in groups if str(group["file"]).startswith(of_class)],
        noun=found.classes.noun,
        version=__version__,
    )


def markdown(found: Inspection, shown: Sequence[Shown]) -> str:
    """Return the data card as Markdown, with links to the sheets beside it."""
    out = [f"# Data set {_plain(found.data.name)}", _plain(_standfirst(found)), "## Findings"]
    out.append("\n".join(f"- **{one.lead}** {_plain(one.text)}" for one in findings(found)))
    facts = _facts(found.data.name)
    if facts:
        out.append("## Origin")
        out.append("\n".join(f"- **{_plain(term)}**: {_plain(text)}" for term, text in facts))
    for table in tables(found):
        lines = ["| " + " | ".join(map(_plain, row)) + " |" for row in (table.columns, *table.rows)]
        rule = "|" + " --- |" * table.texts + " ---: |" * (len(table.columns) - table.texts)
        out += [f"## {table.caption}", "\n".join([lines[0], rule, *lines[1:]])]
        out += [table.note] if table.note else []
    out.append("## Pictures")
    out += [f"{_plain(one.heading)}\n\n![{_plain(one.heading)}]({one.file})" for one in shown]
    return "\n\n".join(out) + "\n"


def _facts(name: str) -> list[tuple[str, str]]:
    """Return the data card that the data set's module carries as its docstring, row by row; nothing for others."""
    if name not in DATASETS:
        return []
    steps, text = DATASETS[name].steps, DATASETS[name].card
    rows = re.findall(r"^\|([^|\n]+)\|([^|\n]+)\|$", text, re.MULTILINE)
    pairs = [
        (term.strip(), content.strip().replace("`STEPS` below", steps).replace("`", ""))
        for term, content in rows
    ]
    return [(term, content) for term, content in pairs if term and not set(term) <= set("-: ")]


def _standfirst(found: Inspection) -> str:
    data = found.data
    return f"{len(data.records):,} images of {data.size} px, prepared; fingerprint {data.fingerprint[:12]}."


def _plain(text: str) -> str:
    """Return text that Markdown shows as it is: no table cell, tag, link or emphasis begins in it."""
    line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", line)
