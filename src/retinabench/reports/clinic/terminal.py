"""The clinic's answer and the table of a study plan for the terminal, within 80 columns."""

from __future__ import annotations

from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.text import Text

from retinabench.metrics.clinical.screening_report import ScreeningReport
from retinabench.metrics.planning.study_plan import StudyPlan
from retinabench.reports.clinic import tables
from retinabench.reports.clinic.answer import SetAnswer, answer_sets
from retinabench.reports.toolkit.number_format import COUNT, NumberFormat
from retinabench.reports.toolkit.pages import macros
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table
from retinabench.reports.toolkit.terminal import to_terminal

EFFECT = NumberFormat(2)
MISSED = 10
"""Missed images that are listed; the rest are in the JSON and on the page."""


def clinic_summary(report: ScreeningReport) -> Group:
    """Return the answer, missed disease, rates, subgroups and predictive values of every set."""
    found = answer_sets(report)
    parts: list[RenderableType] = []
    for answer in found:
        parts += _set_summary(answer, report, many=len(found) > 1)
    return Group(*parts)


def _set_summary(answer: SetAnswer, report: ScreeningReport, *, many: bool) -> list[RenderableType]:
    say = macros("say.html.j2", package="retinabench.reports.clinic")
    parts: list[RenderableType] = [Text(_plain(say.answer(answer, report, many)), "bold"), Text("")]
    facts = [
        ("Missed", say.missed(answer)), ("Thresholds", say.thresholds(report, answer)), ("Cost", say.cost(answer)),
        ("For whom", say.whom(answer)), ("Worth", say.worth(answer)),
    ]  # fmt: skip
    if answer.one.ungradable is not None:
        facts.append(("Ungradable", say.ungradable(answer)))
    parts += [Text.assemble((f"{name}: ", "bold"), _plain(text)) for name, text in facts]
    parts.append(Text(""))
    images = answer.one.missed.images
    if images:
        parts.append(to_terminal(tables.missed_table(answer, images[:MISSED])))
        if len(images) > MISSED:
            parts.append(Text(f"and {len(images) - MISSED} more: --json or --out lists them all\n"))
    parts.append(to_terminal(tables.rates_table(answer, report)))
    if answer.one.subgroups is not None and answer.one.subgroups.groups:
        parts.append(to_terminal(_groups_table(answer)))
    parts.append(to_terminal(tables.predictive_table(answer)))
    return parts


def _groups_table(answer: SetAnswer) -> Table:
    groups = answer.one.subgroups
    assert groups is not None
    rows = [
        Row(
            one.name,
            [
                Cell(f"{one.patients:,}"),
                *(
                    _short(tables.group_cell(one.rates[rate]))
                    for rate in ("sensitivity", "specificity", "auroc")
                ),
            ],
        )
        for one in groups.groups
    ]
    columns = [Column(head) for head in ("Patients", "Sensitivity", "Specificity", "AUROC")]
    note = "worse: below the other images, by intervals that hold for all groups at once"
    return Table.of(f"{answer.label}: subgroups", columns, rows, row_header="Group", note=note)


def _short(cell: Cell) -> Cell:
    """Leave out why a group is too small: the page says it."""
    return Cell("too small") if isinstance(cell.content, str) else cell


def _plain(text: Markup) -> str:
    return " ".join(text.striptags().split())


def plan_table(plan: StudyPlan) -> Group:
    """Return the patients that each question needs, the most demanding first."""
    columns = [Column("patients"), Column("images"), Column("referable\nimages"), Column("design\neffect")]
    rows = []
    for name, one in sorted(plan.requirements.items(), key=lambda item: -item[1].patients):
        numbers = (one.patients, one.images, one.positives)
        cells = [Cell.number(number, form=COUNT) for number in numbers]
        cells.append(Cell.number(one.design_effect, form=EFFECT))
        if name == plan.decisive:
            cells[0] = Cell.number(one.patients, form=COUNT, emphasis="best")
        rows.append(Row(one.question, cells))
    caption = (
        f"{plan.patients:,} patients answer every question (prevalence {plan.assumptions.prevalence:.3g})"
    )
    sources = "; ".join(dict.fromkeys(one.source for one in plan.requirements.values()))
    table = Table.of(caption, columns, rows, row_header="To know", note=f"Formulas: {sources}.")
    return to_terminal(table)
