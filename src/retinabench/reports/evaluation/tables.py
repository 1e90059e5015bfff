"""The tables of a report: for the page, for `table.csv`, and for the terminal."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup

from retinabench.metrics.registry import SCORES
from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.evaluation.evidence import Estimate
from retinabench.reports.evaluation.study import LEAD, Study
from retinabench.reports.toolkit.marking import place, value
from retinabench.reports.toolkit.number_format import plain


@dataclass(frozen=True)
class Column:
    """A column: its header and whether it holds text."""

    label: str
    text: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell: its content and a class of the style sheet."""

    html: Markup
    kind: str = ""


@dataclass(frozen=True)
class Row:
    """A row: its header, its cells, and whether it is a control rather than a method."""

    label: str
    cells: list[Cell]
    control: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table of the page."""

    caption: str
    columns: list[Column]
    rows: list[Row] = field(default_factory=list)


MAIN = (
    "auroc",
    "accuracy",
    "nll",
    "ece_top_label",
    "accuracy_at_50",
    "referral_accuracy_area",
    "failure_auroc",
)
"""Scores of the main table."""


def score_tables(study: Study) -> list[Sheet]:
    """Methods by scores, one table per set, with random and oracle referral of the leading method.

    A score that no method has on any set (the published rules know fewer) has no column.
    """
    shown = [
        score
        for score in MAIN
        if any(np.isfinite(study.get(i, name, score).value) for i, name in study.cases)
    ]
    columns = [Column("Method", True)]
    columns += [Column(SCORES[score].heading) for score in shown]
    sheets = []
    for name in study.sets:
        best = {score: study.best(name, score) for score in shown}
        rows = [
            Row(entry.name, [_score_cell(study, i, name, score, best[score] == i) for score in shown])
            for i, entry in enumerate(study.entries)
            if (i, name) in study.cases
        ]
        sheets.append(Sheet(SET_LABELS[name], columns, rows + _controls(study, name, shown)))
    return sheets


def _score_cell(study: Study, i: int, name: str, score: str, best: bool) -> Cell:
    estimate, where = study.get(i, name, score), place(study, i, name, score)
    if not np.isfinite(estimate.value):
        return Cell(Markup("–"))
    number = where.number(estimate.value, digits=3)
    if best:
        number = Markup('<span class="best">{}</span>').format(number)
    if np.isfinite(estimate.se):
        number += Markup(" ± {}").format(where.number(estimate.se, "standard_error", digits=3))
    interval = where.interval(estimate, digits=3)
    return Cell(Markup('{}<span class="interval">{}</span>').format(number, interval) if interval else number)


def _controls(study: Study, name: str, shown: list[str]) -> list[Row]:
    case = study.first(study.leader, name)
    if case is None:
        return []
    random, perfect = control_scores(study, name)
    return [
        Row(kind, [_control_cell(scores, score) for score in shown], control=True)
        for kind, scores in (("random referral", random), ("oracle referral", perfect))
    ]


def _control_cell(scores: dict[str, float], score: str) -> Cell:
    return Cell(Markup("{}").format(plain(scores[score], 3) if score in scores else ""))


def control_scores(study: Study, name: str) -> tuple[dict[str, float], dict[str, float]]:
    """Return what the leading method's answers score under a random and under the perfect order of referral."""
    from retinabench.metrics.selective.referral_curves import area_of

    cases = study.cases[study.leader, name]
    accuracy = study.get(study.leader, name, "accuracy").value
    area = float(np.mean([area_of(case.perfect.weighted(), "accuracy") for case in cases]))
    errors = accuracy < 1
    random = {"accuracy_at_50": accuracy, "referral_accuracy_area": accuracy, "failure_auroc": 0.5}
    best = study.get(study.leader, name, "perfect_accuracy_at_50").value
    return random, {
        "accuracy_at_50": best, "referral_accuracy_area": area, "failure_auroc": 1.0 if errors else np.nan,
    }  # fmt: skip


REFERRED = (
    "accuracy_at_50",
    "gain_at_50",
    "closed_at_50",
    "sensitivity_at_50",
    "specificity_at_50",
    "prevalence_at_50",
    "missed_at_50",
)
SHARES = {"closed_at_50", "prevalence_at_50", "missed_at_50"}


def referral_tables(study: Study) -> list[Sheet]:
    """Return what the kept half looks like, per set: accuracy alone hides that referral takes the sick away."""
    columns = [Column("Method", True), *(Column(SCORES[score].label) for score in REFERRED)]
    sheets = []
    for name in study.sets:
        rows = []
        for i, entry in enumerate(study.entries):
            if (i, name) in study.cases:
                rows.append(Row(entry.name, [_referred_cell(study, i, name, score) for score in REFERRED]))
        sheets.append(Sheet(f"{SET_LABELS[name]}: the half that is kept", columns, rows))
    return sheets


def _referred_cell(study: Study, i: int, name: str, score: str) -> Cell:
    estimate, where = study.get(i, name, score), place(study, i, name, score)
    if not np.isfinite(estimate.value):
        return Cell(Markup("–"))
    style = "percent" if score in SHARES else "signed" if score == "gain_at_50" else "plain"
    number, interval = (
        where.number(estimate.value, digits=3, style=style),
        where.interval(estimate, digits=3, style=style),
    )
    return Cell(Markup('{}<span class="interval">{}</span>').format(number, interval))


def nhs_table(study: Study) -> Sheet:
    """Return each method's sensitivity at a specificity of at least 0.80, beside the goal of 0.85."""
    sets = [name for name in study.sets if name != "joint"]
    columns = [
        Column(SCORES["sensitivity_at_specificity_80"].label, True),
        *(Column(SET_LABELS[name]) for name in sets),
    ]
    rows = []
    for i, entry in enumerate(study.entries):
        cells = [_nhs_cell(study, i, name) for name in sets]
        rows.append(Row(entry.name, cells))
    return Sheet("The NHS standard: sensitivity 0.85 at specificity 0.80", columns, rows)


def _nhs_cell(study: Study, i: int, name: str) -> Cell:
    score = "sensitivity_at_specificity_80"
    estimate, where = study.get(i, name, score), place(study, i, name, score)
    if not np.isfinite(estimate.value):
        return Cell(Markup("–"))
    word, kind = (
        ("met, whole interval", "yes") if estimate.low >= 0.85
        else ("met by the estimate", "maybe") if estimate.value >= 0.85
        else ("not met", "no")
    )  # fmt: skip
    return Cell(
        Markup('{} <span class="{}">{}</span><span class="interval">{}</span>').format(
            value(study, i, name, score, digits=3), kind, word, where.interval(estimate, digits=3)
        )
    )


def csv_bytes(study: Study) -> bytes:
    """Return every estimate of the study in one long table, with all digits."""
    with io.StringIO(newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["method", "set", "score", "value", "low", "high", "standard_error", "files"])
        for (i, name, score), estimate in sorted(study.estimates.items(), key=lambda item: item[0]):
            entry = study.entries[i]
            writer.writerow([entry.name, name, score, *_digits(estimate), len(entry.predictions)])
        for (i, score), estimate in sorted(study.changes.items()):
            entry = study.entries[i]
            row = [entry.name, "shifted_minus_in_domain", score, *_digits(estimate), len(entry.predictions)]
            writer.writerow(row)
        for i, name, estimate in study.leads():
            writer.writerow([study.lead_label(i), name, LEAD, *_digits(estimate), ""])
        return out.getvalue().encode()


def _digits(estimate: Estimate) -> list[str]:
    parts = (estimate.value, estimate.low, estimate.high, estimate.se)
    return ["" if not np.isfinite(part) else repr(float(part)) for part in parts]
