"""The tables and sentences of a monitor, for the page, and what `retinabench monitor` prints of them within 80 columns."""

from __future__ import annotations

import math

from rich.console import Group
from rich.text import Text

from retinabench.metrics.guarantees.risks import PER, TARGETS
from retinabench.metrics.monitoring.result import Evidence, Monitoring
from retinabench.metrics.proportions import Interval
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.number_format import COUNT, NumberFormat, percent
from retinabench.reports.toolkit.pages import Finding
from retinabench.reports.toolkit.tables import UNDEFINED, Cell, Column, Row, Table
from retinabench.reports.toolkit.terminal import to_terminal

EVIDENCE = NumberFormat(2)
SIGNED = NumberFormat(3, signed=True)
THRESHOLD = NumberFormat(4)
LARGE = 1e4
LATEST = 6  # windows on the terminal

PACKAGE = "retinabench.reports.monitoring"


def monitor_tables(found: Monitoring) -> Group:
    """Return the headline, the tables and what they mean, for the terminal."""
    tables = [evidence_table(found), windows_table(found, LATEST), expected_table(found)]
    said = [f"{one.lead} {one.text}" for one in findings(found)]
    if found.expected is not None:
        said.append(expected_note(found))
    shown = Group(*(to_terminal(one) for one in tables if one is not None))
    return Group(Text(headline(found), style="bold"), shown, Text("\n".join(said)))


def evidence_table(found: Monitoring) -> Table:
    """Return one row per certified target, for all of them together, and for drift."""
    heads = ("patients", "now", "evidence", "alarm at", "alarm since")
    several = len(found.risks) > 1
    rows = [_evidence_row(one.name, one, found.overall[one.name]) for one in found.risks]
    if several:
        rows.append(_evidence_row("all goals together", found.combined, None))
    rows.append(_evidence_row("drift", found.drift, None))
    return Table.of(
        "Evidence so far", [Column(head) for head in heads], rows, row_header="Watched",
        note=f"now: the value over all labelled images, {PER[found.certified.per]}, with its 95 % interval.",
    )  # fmt: skip


def _evidence_row(name: str, one: Evidence, value: Interval | None) -> Row:
    if len(one.log_wealth) and one.wealth > LARGE:
        evidence = Cell(f"> {LARGE:,.0f}")
    else:
        evidence = Cell("< 0.01") if one.wealth < 0.01 else Cell.number(one.wealth, form=EVIDENCE)
    alarm = Cell("–") if one.alarm is None else Cell(str(one.alarm), emphasis="bad")
    return Row(
        goal_text(name),
        [
            Cell.number(one.patients, form=COUNT), UNDEFINED if value is None else _cell(value), evidence,
            Cell.number(one.needed, form=COUNT), alarm,
        ],
    )  # fmt: skip


def windows_table(found: Monitoring, most: int | None = None) -> Table:
    """Return one row per window of time."""
    names = list(found.overall)
    heads = [
        "images",
        "labelled",
        "referred",
        *(goal_text(name).replace(" ", "\n", 1) for name in names),
    ]
    if most is None:
        heads.append("observed − predicted")
    rows = []
    for one in found.windows[-most if most else 0 :]:
        cells = [
            Cell.number(one.images, form=COUNT),
            Cell.number(one.labelled, form=COUNT),
            _cell(one.referred),
        ]
        cells += [_cell(one.risks[name]) for name in names]
        rows.append(Row(one.start, [*cells, *([_cell(one.calibration, SIGNED)] if most is None else [])]))
    title = f"By {found.unit}"
    if most and len(found.windows) > most:
        title += f", the latest {most} of {len(found.windows)}"
    return Table.of(title, [Column(head) for head in heads], rows, row_header="From")


def expected_table(found: Monitoring) -> Table | None:
    """Return the estimates for images without labels; None where there are none."""
    if found.expected is None:
        return None
    columns = [Column(one.name) for one in found.expected.assumed]
    rows = [
        Row(
            goal_text(name),
            [_estimate(one.targets[name].risk, one.targets[name].why) for one in found.expected.assumed],
        )
        for name in found.overall
    ]
    thresholds = [_threshold(one.threshold) for one in found.expected.assumed]
    rows.append(Row("refer above, for every goal", thresholds))
    prevalence = found.expected.prevalence
    rows.append(
        Row("share of referable images", [UNDEFINED, _estimate(prevalence.prevalence, prevalence.why)])
    )
    return Table.of("Images without labels", columns, rows, row_header="Assumed")


def _threshold(value: float | None) -> Cell:
    return Cell("none") if value is None else Cell.number(value, form=THRESHOLD)


def _estimate(value: Interval, why: str | None) -> Cell:
    return Cell.number(None, why=why or "") if why else _cell(value)


def _cell(value: Interval, form: NumberFormat | None = None) -> Cell:
    return (
        Cell.number(value.value, value.low, value.high, form=form)
        if math.isfinite(value.value)
        else UNDEFINED
    )


def goal_text(goal: object) -> str:
    """Return a goal as a reader sees it: `error of the retained ≤ 0.05`."""
    target, *bound = str(goal).split()
    heading = TARGETS[target].heading if target in TARGETS else target
    return " ".join([heading, *bound]).replace("<=", "≤").replace(">=", "≥")


def headline(found: Monitoring) -> str:
    """Return the one sentence that matters most."""
    return _say("headline", found)


def findings(found: Monitoring) -> list[Finding]:
    """Return what labels and drift show."""
    labels = "bad" if found.combined.alarm is not None else ""
    drift = "bad" if found.drift.alarm is not None else ""
    return [
        Finding("Certified risks.", _say("risk", found), labels),
        Finding("Drift.", _say("drift", found), drift),
        Finding("What no alarm can see.", _say("blind", found)),
    ]


def windows_note(found: Monitoring) -> str:
    """Return how the windows of time are to be read."""
    return _say("windows", found)


def expected_note(found: Monitoring) -> str:
    """Return how estimates without labels are to be read."""
    return _say("expected", found)


def _say(name: str, found: Monitoring) -> str:
    macro = getattr(pages.macros("sentences.j2", package=PACKAGE), name)
    goals = found.broken or found.certified.goals
    return " ".join(str(macro(found, percent(found.level), " and ".join(map(goal_text, goals)))).split())
