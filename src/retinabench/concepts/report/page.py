"""The page of an examination: `Examination.to_dict()` in, one self-contained HTML page out.

The sentences are in `templates/examination.html.j2`; `findings.py` computes what they state.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from retinabench.concepts.report import figures
from retinabench.concepts.report.beside_tables import readers_tables, referral_tables
from retinabench.concepts.report.concept_rates import OUTCOMES, ConceptRate, rates
from retinabench.concepts.report.findings import (
    entangled,
    left_open,
    met_goals,
    missed_goals,
    recognised,
    scarce_samples,
    strategy_order,
)
from retinabench.concepts.report.thresholds import cut_offs
from retinabench.core.atomic_files import write_bytes
from retinabench.reports.toolkit import pages
from retinabench.reports.toolkit.figures import Line, to_svg
from retinabench.reports.toolkit.number_format import COUNT, PERCENT, TWO_DIGITS, percent, plain
from retinabench.reports.toolkit.style import HUES, LegendEntry, Mark, Panel, mark
from retinabench.reports.toolkit.tables import UNDEFINED, Cell, Column, Row, Table

TITLE = "Which concepts does the model recognise?"
CONTENTS = (
    ("verdict", "Results"), ("claims", "Claims"), ("concepts", "Concepts"), ("readers", "Readers"), ("referral", "Referral"),
    ("performance", "Answers"),
    ("strategies", "Strategies"), ("state", "Snapshot"), ("reading", "Definitions"), ("repeat", "Reproduction"),
)  # fmt: skip


def write_report(found: Mapping[str, Any], comparison: Mapping[str, Any] | None, out: Path) -> Path:
    """Write the page of an examination; the same arguments give the same bytes.

    Args:
        found: What `Examination.to_dict()` returns, see `render`.
        comparison: What `compare_strategies` returns; None leaves it out.
        out: The folder of `index.html`.

    Returns:
        The path of the page.
    """
    write_bytes(out / "index.html", render(found, comparison).encode())
    return out / "index.html"


def render(found: Mapping[str, Any], comparison: Mapping[str, Any] | None = None) -> str:
    """Return the page of an examination.

    Args:
        found: What `Examination.to_dict()` returns; `bank` may hold `together`, see `overlap.py`.
        comparison: What `compare_strategies` returns, with that of `snapshot` under `state`; None leaves it out.

    Returns:
        The HTML of the page.
    """
    state = (comparison or {}).get("state")
    bank = found["bank"]
    context: dict[str, Any] = {
        "title": TITLE,
        "found": found,
        "comparison": comparison,
        "questions": sum(bank["positives"].values()) + sum(bank["negatives"].values()),
        "goals": found.get("goals", {}),
        "cut_offs": cut_offs(found),
        "recognition": recognised(found),
        "missed": missed_goals(found),
        "met": met_goals(found),
        "scarce": scarce_samples(found),
        "entangled": entangled(found),
        "open": left_open(found),
        "confidence": 1 - found["error_control"]["alpha"],
        "exploratory": [claim for claim in found["claims"] if not claim["registered"]],
        "registered": [claim for claim in found["claims"] if claim["registered"]],
        "order": strategy_order(found, comparison) if comparison else None,
        "rates_figure": _rates_figure(found),
        "claims_table": _claims_table(found) if found["claims"] else None,
        "companion_table": _companion_table(found),
        "counts_table": _counts_table(found),
        "readers_tables": readers_tables(found) if "readers" in found else [],
        "referral_tables": referral_tables(found["referral"]) if "referral" in found else [],
        "performance_figures": _performance_figures(found),
        "silent": [name for name, one in found["concepts"].items() if not any(one["counts"].values())],
        "patients": any("patients" in one[name] for one in found["concepts"].values() for name in OUTCOMES),
        "progress_figure": _progress_figure(comparison) if comparison else None,
        "strategies": [LegendEntry(name, sign) for name, sign in _marks(comparison)],
        "strategies_table": _strategies_table(comparison) if comparison else None,
        "state_figures": _state_figures(state) if state else None,
        "state_questions": state["questions"] if state else 0,
    }
    shown = {
        "claims": context["claims_table"],
        "readers": context["readers_tables"],
        "referral": context["referral_tables"],
        "strategies": context["progress_figure"],
        "state": context["state_figures"],
    }
    contents = [(anchor, label) for anchor, label in CONTENTS if shown.get(anchor, True)]
    return pages.render(
        "examination.html.j2", {**context, "contents": contents}, package="retinabench.concepts.report"
    )


def _rates_figure(found: Mapping[str, Any]) -> Panel:
    """Sensitivity and specificity of every concept, each with its interval for new samples."""
    rows: list[tuple[str, list[figures.RateMark]]] = []
    said = []
    for pair in rates(found):
        marks = [figures.RateMark(color, rate.quantity) for color, rate in zip(HUES, pair, strict=False)]
        rows.append((pair[0].concept, marks))
        said.append(f"{pair[0].concept}: " + ", ".join(f"{r.measure} {percent(r.value)}" for r in pair))
    svg = to_svg(
        figures.interval_panel(rows), "rates",
        title="Sensitivity and specificity by concept", description="; ".join(said),
    )  # fmt: skip
    return Panel("Right answers, with 95 % intervals for new samples", svg)


def _performance_figures(found: Mapping[str, Any]) -> list[Panel]:
    panels = []
    for number, (concept, one) in enumerate(found["concepts"].items()):
        counts = one["counts"]
        if not any(counts.values()):
            continue
        svg = to_svg(
            figures.performance_panel(*figures.arrays(one)), f"performance-{number}",
            title=f"Answers about {concept}",
            description=", ".join(f"{counts[key]} {key.upper()}" for key in counts),
        )  # fmt: skip
        caption = f"uncertainty: {plain(one['gp']['u_minus'])} without, {plain(one['gp']['u_plus'])} with"
        panels.append(Panel(concept, svg, caption))
    return panels


def _marks(comparison: Mapping[str, Any] | None) -> list[tuple[str, Mark]]:
    return [(name, mark(number)) for number, name in enumerate((comparison or {}).get("strategies", {}))]


def _progress_figure(comparison: Mapping[str, Any]) -> Panel:
    asked = np.asarray(comparison["questions"], np.float64)
    lines, said = [], []
    for name, sign in _marks(comparison):
        mean, low, high = (
            np.asarray(comparison["strategies"][name][key], np.float64) for key in ("mean", "low", "high")
        )
        lines.append(Line(sign, asked, mean, low, high))
        said.append(
            f"{name}: {mean[0]:.2f} at first, {mean[len(mean) // 2]:.2f} half-way, {mean[-1]:.2f} at last"
        )
    svg = to_svg(
        figures.progress_panel(lines), "progress",
        title="Uncertainty against the number of questions, by strategy", description="; ".join(said),
    )  # fmt: skip
    return Panel("Uncertainty against questions", svg)


def _state_figures(state: Mapping[str, Any]) -> list[tuple[str, list[Panel]]]:
    """Return a panel per strategy for each concept, all panels of a concept on one scale."""
    groups = []
    for i, concept in enumerate(state["concepts"]):
        drawn, limits = figures.states(state, concept)
        panels = []
        for j, (name, parts) in enumerate(drawn.items()):
            asked = [int(half.sum()) for half in parts[0].reshape(2, 50)]
            told = f"{pages.counted(asked[0], 'question')} without, {asked[1]} with"
            title = f"{concept} after {state['questions']} questions, {name}"
            svg = to_svg(
                figures.performance_panel(*parts, limits=limits),
                f"state-{i}-{j}",
                title=title,
                description=told,
            )
            panels.append(Panel(name, svg, told))
        groups.append((concept, panels))
    return groups


def _companion_table(found: Mapping[str, Any]) -> Table:
    columns = [
        Column("Sensitivity, this bank"),
        Column("Sensitivity, new samples"),
        Column("Specificity, this bank"),
        Column("Specificity, new samples"),
        Column("Accuracy, this bank"),
        Column("AUROC, new samples"),
    ]
    rows = []
    for pair in rates(found):
        one = found["concepts"][pair[0].concept]
        cells = []
        for rate in pair:
            cells += [_bank_cell(one[rate.measure]), _new_cell(rate)]
        rows.append(Row(pair[0].concept, [*cells, _bank_cell(one["accuracy"]), _ranking_cell(one["auroc"])]))
    return Table.of("Rates and their 95 % intervals, per sample", columns, rows, row_header="Concept")


def _new_cell(rate: ConceptRate) -> Cell:
    if not rate.asked:
        return UNDEFINED
    low, high = (percent(end) for end in rate.simultaneous)
    return Cell(rate.quantity, PERCENT, below=f"all at once [{low}, {high}]")


def _bank_cell(rate: Mapping[str, Any]) -> Cell:
    value = rate["value"]
    if value is None:
        return Cell.number(None, why=rate.get("why", ""))
    if rate["low"] == rate["high"]:  # the rate of the bank is known: it has no interval
        return Cell.number(value, form=PERCENT, below="all asked")
    return Cell.number(value, rate["low"], rate["high"], form=PERCENT)


def _ranking_cell(one: Mapping[str, Any]) -> Cell:
    if one["value"] is None:
        return UNDEFINED
    return Cell.number(one["value"], one["low"], one["high"], form=TWO_DIGITS)


def _counts_table(found: Mapping[str, Any]) -> Table:
    heads = ("TN", "FP", "FN", "TP", "Asked, with", "Asked, without")
    rows = []
    for pair in rates(found):
        counts = found["concepts"][pair[0].concept]["counts"]
        cells = [Cell.number(counts[key], form=COUNT) for key in ("tn", "fp", "fn", "tp")]
        cells += [Cell(f"{rate.asked:,} of {rate.of:,}") for rate in pair]
        rows.append(Row(pair[0].concept, cells))
    return Table.of("Answers by outcome", [Column(head) for head in heads], rows, row_header="Concept")


def _claims_table(found: Mapping[str, Any]) -> Table:
    rows = [Row(claim["text"], [_claim_cell(claim)]) for claim in found["claims"]]
    return Table.of("Claims and verdicts", [Column("Verdict", text=True)], rows, row_header="Claim")


def _claim_cell(claim: Mapping[str, Any]) -> Cell:
    counts = f"{claim['asked']} of {claim['of']} questions about it"
    if not claim["registered"]:
        return Cell(f"Exploratory, not decided: stated after the first answer; {counts} were asked.")
    if claim["decided"] == "undecided":
        return Cell(f"Undecided after {counts}: neither the claim nor its opposite is shown.")
    after = "before the first question" if not claim["after"] else f"at question {claim['after']}"
    holds = claim["decided"] == "holds"
    text = f"{'Holds' if holds else 'Does not hold'}, decided {after}."
    return Cell(text, emphasis="good" if holds else "bad")


def _strategies_table(comparison: Mapping[str, Any]) -> Table:
    """Return the questions that each strategy needs to reach a level of uncertainty, with the interval over repetitions."""
    reached = {name: one["questions_to"] for name, one in comparison["strategies"].items()}
    levels = list(next(iter(reached.values())))
    columns = [Column(f"to {float(level):.2f}") for level in levels]
    rows = [Row(name, [_questions_cell(one[level]) for level in levels]) for name, one in reached.items()]
    return Table.of("Questions until the uncertainty reaches a level", columns, rows, row_header="Strategy")


def _questions_cell(one: Mapping[str, Any]) -> Cell:
    if one["value"] is None:
        return Cell("not always")
    return Cell.number(one["value"], one["low"], one["high"], form=COUNT)
