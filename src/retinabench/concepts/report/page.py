"""The page of an examination: `ExaminationReport` in, one self-contained HTML page out.

The sentences are in `templates/examination.html.j2`; `findings.py` computes what they state.
"""

from __future__ import annotations

from pathlib import Path

from retinabench.concepts.inference.rates import ALPHA, Rate
from retinabench.concepts.questioning.examination import Readers
from retinabench.concepts.report import figures
from retinabench.concepts.report.findings import (
    ConceptRate,
    ExaminationReport,
    by_goal,
    claim_verdicts,
    cut_offs,
    entangled,
    exhausted,
    left_open,
    missed_goals,
    readers_tables,
    recognised,
    referral_tables,
    scarce_samples,
)
from retinabench.core.files import write_bytes
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.figures import HUES, Panel, drawing, to_svg
from retinabench.reports.toolkit.tables import (
    COUNT,
    PERCENT,
    TWO_DIGITS,
    UNDEFINED,
    Cell,
    Column,
    Row,
    Table,
    percent,
    plain,
)

TITLE = "Which concepts does the model recognise?"
CONTENTS = (
    ("verdict", "Results"), ("concepts", "Concepts"), ("readers", "Readers"), ("referral", "Referral"),
    ("performance", "Answers"),
    ("reading", "Definitions"), ("repeat", "Reproduction"),
)  # fmt: skip


def write_report(report: ExaminationReport, out: Path) -> Path:
    write_bytes(out / "index.html", render(report).encode())
    return out / "index.html"


@drawing()
def render(report: ExaminationReport) -> str:
    found = report.examination
    readers = readers_tables(found.readers) if found.readers else []
    referral = referral_tables(report.referral) if report.referral else []
    context = {
        "title": TITLE,
        "found": found,
        "referral": report.referral,
        "questions": int(found.bank.cells.sum()),
        "goals": report.goals,
        "cut_offs": cut_offs(report),
        "recognition": recognised(report),
        "missed": missed_goals(report),
        "met": [rate for rate in report.judged if rate.standing == "met"],
        "open_goals": by_goal(rate for rate in report.every_rate if rate.standing == "open"),
        "beside": _beside(found.readers) if found.readers else {},
        "verdicts": claim_verdicts(report),
        "scarce": scarce_samples(report),
        "entangled": entangled(report),
        "open": left_open(report),
        "exhausted": by_goal(exhausted(report)),
        "panel": found.readers is not None and found.readers.panel,
        "joint": found.readers is not None and found.readers.joint,
        "confidence": 1 - ALPHA,
        "exploratory": [claim for claim in found.claims if not claim.registered],
        "rates_figure": _rates_figure(report),
        "companion_table": _companion_table(report),
        "counts_table": _counts_table(report),
        "readers_tables": readers,
        "referral_tables": referral,
        "performance_figures": _performance_figures(report),
        "silent": [name for name, one in found.concepts.items() if not any(one.counts.values())],
        "patients": any(rate.counted for rate in report.every_rate),
    }
    shown = {"readers": readers, "referral": referral}
    contents = [(anchor, label) for anchor, label in CONTENTS if shown.get(anchor, True)]
    return pages.render("examination.html.j2", {**context, "contents": contents}, package="retinabench.concepts.report")


def _beside(readers: Readers) -> dict[str, list[str]]:
    """Return the concepts by how the model's rates compare with the mean reader's, such as "higher sensitivity"."""
    groups: dict[str, list[str]] = {}
    for name, told in readers.concepts.items():
        for measure, one in told.beside.items():
            words = (one.verdict, measure) if one.verdict in ("higher", "lower") else (measure, one.verdict)
            groups.setdefault(" ".join(words), []).append(name)
    return groups


def _rates_figure(report: ExaminationReport) -> Panel:
    """Sensitivity and specificity of every concept, each with its interval for new samples and the goal of a claim or of `--goal`."""
    claimed = {(claim.concept, 1 - claim.truth): claim.goal for claim in report.examination.claims}
    rows: list[tuple[str, list[figures.RateMark]]] = []
    said = []
    for number, pair in enumerate(report.rates):
        goals = [claimed.get((number, place), rate.goal) for place, rate in enumerate(pair)]
        marks = [figures.RateMark(HUES[k], rate.quantity, goals[k]) for k, rate in enumerate(pair)]
        rows.append((pair[0].concept, marks))
        said.append(f"{pair[0].concept}: " + ", ".join(f"{r.measure} {percent(r.value)}" for r in pair))
    title, figure = "Sensitivity and specificity by concept", figures.interval_panel(rows)
    svg = to_svg(figure, "rates", title=title, description="; ".join(said))
    judged = any(mark.goal is not None for _, marks in rows for mark in marks)
    return Panel(f"Right answers, with 95 % intervals for new samples{' and goals (bars)' if judged else ''}", svg)


def _performance_figures(report: ExaminationReport) -> list[Panel]:
    panels = []
    for number, (concept, one) in enumerate(report.examination.concepts.items()):
        if not any(one.counts.values()):
            continue
        said = ", ".join(f"{count} {key.upper()}" for key, count in one.counts.items())
        figure, title = figures.performance_panel(one), f"Answers about {concept}"
        svg = to_svg(figure, f"performance-{number}", title=title, description=said)
        panels.append(Panel(concept, svg, f"uncertainty: {plain(one.gp.u_minus)} without, {plain(one.gp.u_plus)} with"))
    return panels


def _companion_table(report: ExaminationReport) -> Table:
    rates = [f"{rate}, {of}" for rate in ("Sensitivity", "Specificity") for of in ("this bank", "new samples")]
    columns = [Column(head) for head in (*rates, "Accuracy, this bank", "AUROC, new samples")]
    rows = []
    for pair in report.rates:
        one = report.examination[pair[0].concept]
        cells = []
        for rate, whole in zip(pair, (one.sensitivity, one.specificity), strict=True):
            cells += [_bank_cell(whole), _new_cell(rate)]
        ranking = UNDEFINED if one.auroc.value is None else Cell.number(*one.auroc[:3], form=TWO_DIGITS)
        rows.append(Row(pair[0].concept, [*cells, _bank_cell(one.accuracy), ranking]))
    return Table.of("Rates and their 95 % intervals, per sample", columns, rows, row_header="Concept")


def _new_cell(rate: ConceptRate) -> Cell:
    together = ", ".join(map(percent, rate.simultaneous))
    return Cell(rate.quantity, PERCENT, below=f"all at once [{together}]") if rate.asked else UNDEFINED


def _bank_cell(rate: Rate) -> Cell:
    if rate.value is None:
        return Cell.number(None, why=rate.why or "")
    if rate.low == rate.high:  # the rate of the bank is known: it has no interval
        return Cell.number(rate.value, form=PERCENT, below="all asked")
    return Cell.number(rate.value, rate.low, rate.high, form=PERCENT)


def _counts_table(report: ExaminationReport) -> Table:
    heads = ("TN", "FP", "FN", "TP", "Asked, with", "Asked, without")
    rows = []
    for pair in report.rates:
        counts = report.examination[pair[0].concept].counts
        cells = [Cell.number(counts[key], form=COUNT) for key in ("tn", "fp", "fn", "tp")]
        cells += [Cell(f"{rate.asked:,} of {rate.of:,}") for rate in pair]
        rows.append(Row(pair[0].concept, cells))
    return Table.of("Answers by outcome", [Column(head) for head in heads], rows, row_header="Concept")
