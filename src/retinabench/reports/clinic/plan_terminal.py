"""The table of a study plan for the terminal."""

from __future__ import annotations

from rich.console import Group

from retinabench.metrics.planning.study_plan import StudyPlan
from retinabench.reports.toolkit.number_format import COUNT, NumberFormat
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table
from retinabench.reports.toolkit.terminal import to_terminal

EFFECT = NumberFormat(2)


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
