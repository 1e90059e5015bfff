"""The clinic's page: the facts of a `ScreeningReport` in, HTML out; the text is in `templates/`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePath

from matplotlib.figure import Figure

from retinabench.core.files import write_bytes, write_json
from retinabench.metrics.clinical.screening_report import ScreeningReport
from retinabench.metrics.policies.grid import PolicyGrid
from retinabench.reports.clinic import figures, tables
from retinabench.reports.clinic.answer import SetAnswer, answer_sets
from retinabench.reports.clinic.checklist import checklist, checklist_table
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.explore import explorer
from retinabench.reports.toolkit.figures import to_svg
from retinabench.reports.toolkit.style import LegendEntry, Panel
from retinabench.reports.toolkit.tables import Table

TITLE = "Can this model's uncertainty drive referral?"
FIRST_MISSED, MOST_MISSED = 15, 1000
CONTENTS = (
    ("verdict", "Answer"), ("explore", "Other thresholds"), ("missed", "Missed disease"), ("rates", "Sensitivity and specificity"),
    ("groups", "Subgroups"), ("work", "Cost"), ("risk", "Calibration and net benefit"), ("data", "Data"),
    ("checklist", "Checklist"),
)  # fmt: skip


@dataclass(frozen=True)
class SetPage:
    """What the page shows of one set."""

    answer: SetAnswer
    missed_figure: Panel
    missed_table: Table | None
    further_missed: Table | None
    listed: int
    rates: Table
    ungradable: Table | None
    groups: list[Table]
    predictive: Table
    operating: Table
    decision_figure: Panel
    calibration_figure: Panel


def render(report: ScreeningReport, grid: PolicyGrid | None = None) -> str:
    """Return the page of a screening report."""
    found = [_set_page(answer, report) for answer in answer_sets(report)]
    absent = ([] if len(found) > 1 else ["work"]) + ([] if grid is not None else ["explore"])
    context = {
        "title": TITLE,
        "contents": [entry for entry in CONTENTS if entry[0] not in absent],
        "explorer": None if grid is None else explorer({"model": grid}, report.reader),
        "report": report,
        "sets": found,
        "many": len(found) > 1,
        "file": PurePath(report.source).name if report.source else "predictions",
        "counts": tables.counts_table([one.answer for one in found]),
        "checklist": checklist_table(checklist(report)),
        "decision_legend": [
            LegendEntry("model alone", figures.MODEL), LegendEntry("model, the referred read by the reader", figures.READER),
        ],
    }  # fmt: skip
    return pages.render("clinic.html.j2", context, package="retinabench.reports.clinic")


def write_clinic(report: ScreeningReport, out: Path, grid: PolicyGrid | None = None) -> Path:
    """Write `index.html` and `clinic.json` into a folder."""
    page = render(report, grid)
    write_json(out / "clinic.json", clinic_json(report))
    if grid is not None:
        write_json(out / "policies.json", grid.to_dict())
    write_bytes(out / "index.html", page.encode())
    return out / "index.html"


def clinic_json(report: ScreeningReport) -> dict[str, object]:
    """Return what `retinabench clinic --json` writes: the report, the answer of every set and the checklist."""
    return {
        **report.to_dict(),
        "answers": {answer.name: answer.kind for answer in answer_sets(report)},
        "checklist": [item.to_dict() for item in checklist(report)],
    }


def _set_page(answer: SetAnswer, report: ScreeningReport) -> SetPage:
    one, images = answer.one, answer.one.missed.images
    first, further = images[:FIRST_MISSED], images[FIRST_MISSED:MOST_MISSED]
    return SetPage(
        answer,
        _panel(answer, "missed", figures.missed_panel(one), "Referable images missed"),
        tables.missed_table(answer, first) if first else None,
        tables.missed_table(answer, further) if further else None,
        len(first) + len(further),
        tables.rates_table(answer, report),
        tables.ungradable_table(answer),
        [tables.subgroup_table(answer, name) for name in one.subgroups.columns] if one.subgroups else [],
        tables.predictive_table(answer),
        tables.operating_table(answer),
        _panel(answer, "decision", figures.decision_panel(one), "Net benefit"),
        _panel(answer, "calibration", figures.calibration_panel(one.calibration), "Calibration"),
    )


def _panel(answer: SetAnswer, name: str, figure: Figure, title: str) -> Panel:
    heading = f"{title}, {answer.label.lower()}"
    svg = to_svg(
        figure,
        f"{name}-{answer.name}",
        title=heading,
        description=f"{heading} images; the numbers stand in the tables.",
    )
    return Panel(heading, svg)
