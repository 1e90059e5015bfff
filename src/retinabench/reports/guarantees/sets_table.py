"""The table of what a rule that was frozen on validation does to every set, and the lines that all such rules share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group

from retinabench.metrics.guarantees.certificate import Certificate
from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.guarantees.risks import PER, TARGETS, Per
from retinabench.metrics.guarantees.splits import FrozenOnSets
from retinabench.metrics.guarantees.threshold import Realised
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.proportions import Interval
from retinabench.reports.toolkit.number_format import COUNT
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table
from retinabench.reports.toolkit.terminal import to_terminal

LABELS = SET_LABELS | {"validation": "Validation"}
NOTE = (
    "All shares: {per}, with 95 % intervals over patients. Referred images count as read without error. "
    '"Differs" is a screen for covariate shift at level 5 %, not a test of the goals: it cannot see errors of '
    "which the model is sure, and gave no alarm in 94 to 96 % of the simulated studies in which such errors broke a goal."
)


def sets_table(
    sets: Mapping[str, Realised],
    first_rows: Sequence[Row],
    targets: Sequence[str],
    per: Per,
    *,
    certified: bool,
) -> Group:
    """Return the table for the terminal, one column per set."""
    severe = [one.missed_severe for one in sets.values() if one.missed_severe is not None]
    graded = len(severe) == len(sets)
    shown = [name for name in dict.fromkeys(targets) if graded or name != "severe_sensitivity"]
    rows = [
        Row("images", [counted(one.images) for one in sets.values()]),
        *first_rows,
        *(
            Row(TARGETS[name].heading, [with_interval(one.targets[name]) for one in sets.values()])
            for name in shown
        ),
        Row("referable images missed", [_of(*one.missed) for one in sets.values()]),
    ]
    if graded:
        rows.append(Row("grade 3-4 missed", [_of(*counts) for counts in severe]))
    rows.append(Row("differs from validation", [_differs(one) for one in sets.values()]))
    if certified:
        rows.append(Row("certificate", [Cell(one.guarantee or "") for one in sets.values()]))
    elif any(one.judged for one in sets.values()):
        rows.append(Row("goals, by the labels", [Cell(one.judged or "") for one in sets.values()]))
    columns = [Column(LABELS[name]) for name in sets]
    return to_terminal(Table.of("", columns, rows, note=NOTE.format(per=PER[per])))


def broken_lines(found: FrozenOnSets) -> list[str]:
    """Return the line that names the sets whose labels refute the certificate, or goals without one; none where there are none."""
    refuted, what = (found.broken, "the certificate") if found.broken else (found.unmet, "a goal")
    sets = " and ".join(LABELS[name] for name in refuted)
    return [f"Broken: the labels of {sets} refute {what}."] if refuted else []


def needed_lines(certificate: Certificate | None) -> list[str]:
    """Return the line that says how many patients a refused certificate would need; none where it is not known."""
    if certificate is None or certificate.needed is None:
        return []
    needed, there = certificate.needed, certificate.patients
    return [f"About {needed:,} validation patients would be needed; there are {there:,}."]


def goals_line(goals: Sequence[Goal], per: Per, delta: float | None, *, claimed: bool, each: str = "") -> str:
    """Return the line with the goals and, if they were to be certified, with the confidence."""
    sure = ""
    if delta is not None:
        sure = f"; with confidence {1 - delta:.6g} over the draw of the validation patients{each}"
    head = "Claim" if claimed else "Goal"
    return f"{head}, {PER[per]}: {'; '.join(goal.text for goal in goals)}{sure}."


def with_interval(one: Interval) -> Cell:
    """Return a value with its interval."""
    return Cell.number(one.value, one.low, one.high)


def counted(images: int) -> Cell:
    """Return a number of images."""
    return Cell.number(images, form=COUNT)


def _of(images: int, among: int) -> Cell:
    return Cell(f"{images:,} of {among:,}")


def _differs(one: Realised) -> Cell:
    return Cell("" if one.resemblance is None else "yes" if one.resemblance.alarm else "not found")
