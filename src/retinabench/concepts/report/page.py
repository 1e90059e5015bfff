"""`write_report`: an examination in, one self-contained page out.

`found` is what `Examination.to_dict()` returns, `comparison` what `compare_strategies` does, with what `snapshot` returns
under `state` where the strategies shall be shown on their way.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from retinabench.concepts.inference.gaussian_process import GRID, posterior
from retinabench.concepts.report import figures, texts, words
from retinabench.concepts.report.rates import ranking, rates
from retinabench.core import atomic_files
from retinabench.reports.evaluation.figures import Line
from retinabench.reports.evaluation.page import fill
from retinabench.reports.evaluation.panels import Panel
from retinabench.reports.evaluation.tables import Cell, Column, Row, Sheet
from retinabench.reports.toolkit.figures import to_svg
from retinabench.reports.toolkit.number_format import percent, plain
from retinabench.reports.toolkit.style import HUES, Mark, mark

TITLE = "Which concepts does the model grasp?"


def write_report(found: dict[str, Any], comparison: dict[str, Any] | None, out: Path) -> Path:
    """Write `index.html` into the folder `out` and return its path; the same arguments give the same bytes."""
    atomic_files.write_bytes(out / "index.html", render(found, comparison).encode())
    return out / "index.html"


def render(found: dict[str, Any], comparison: dict[str, Any] | None = None) -> str:
    """Return the page. It needs no network and runs no script."""
    state = (comparison or {}).get("state")
    context = {
        "title": TITLE,
        "standfirst": texts.standfirst(found),
        "answer": words.answer(found),
        "findings": [
            ("What the model lacks", words.model_findings(found)),
            ("What the data set lacks", words.data_findings(found)),
            ("What was not asked", words.open_findings(found)),
        ],
        "caution": texts.caution(found),
        "rates_figure": _rates_figure(found),
        "claims_table": _claims_table(found) if found["claims"] else None,
        "companion_text": texts.COMPANION,
        "companion_table": _companion_table(found),
        "counts_table": _counts_table(found),
        "performance_figures": _performance_figures(found),
        "progress_figure": _progress_figure(comparison) if comparison else None,
        "strategies": [{"name": name, "swatch": sign.swatch} for name, sign in _marks(comparison)],
        "strategies_text": texts.progress(found, comparison) if comparison else "",
        "strategies_table": _strategies_table(comparison) if comparison else None,
        "state_figures": _state_figures(state) if state else None,
        "state_questions": state["questions"] if state else 0,
        "state_text": texts.STATE,
        "terms": texts.TERMS,
        "facts": texts.facts(found),
    }
    shown = {
        "claims": context["claims_table"],
        "strategies": context["progress_figure"],
        "state": context["state_figures"],
    }
    contents = [(anchor, label) for anchor, label in texts.CONTENTS if shown.get(anchor, True)]
    return fill("examination.html.j2", {**context, "contents": contents})


def _rates_figure(found: Mapping[str, Any]) -> Panel:
    """Sensitivity and specificity of every concept, with the intervals for new samples."""
    rows, said = [], []
    for pair in rates(found):
        rows.append(
            (
                pair[0].concept,
                [
                    (color, rate.value if rate.asked else None, *rate.interval)
                    for color, rate in zip(HUES, pair, strict=False)
                ],
            )
        )
        said.append(f"{pair[0].concept}: " + ", ".join(f"{r.measure} {percent(r.value)}" for r in pair))
    with warnings.catch_warnings():
        # The text stays text, and the reader's fonts may have what matplotlib's has not.
        warnings.filterwarnings("ignore", "Glyph")
        svg = to_svg(
            figures.interval_panel(rows), "rates",
            title="Sensitivity and specificity by concept", description="; ".join(said),
        )  # fmt: skip
    return Panel("Right answers, with 95 % intervals for new samples", svg)


def _performance_figures(found: Mapping[str, Any]) -> list[Panel]:
    panels = []
    for number, (concept, one) in enumerate(found["concepts"].items()):
        counts = one["counts"]
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
    """One row per concept, one panel per strategy, all panels of a concept on one scale."""
    groups = []
    for i, concept in enumerate(state["concepts"]):
        drawn = {}
        for name, bins in state["bins"].items():
            counts = np.asarray(bins[concept], np.int64)
            process = posterior(counts)
            drawn[name] = (counts.astype(np.float64), GRID, process.mean(), np.sqrt(process.variance()))
        ends = [figures.reach(bins, mean, sd) for bins, _, mean, sd in drawn.values()]
        limits = min(low for low, _ in ends), max(high for _, high in ends)
        panels = []
        for j, (name, parts) in enumerate(drawn.items()):
            asked = [int(half.sum()) for half in parts[0].reshape(2, 50)]
            told = f"{asked[0]} questions without, {asked[1]} with"
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


def _companion_table(found: Mapping[str, Any]) -> Sheet:
    columns = [
        Column("Concept", True),
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
            cells += [_bank_cell(one[rate.measure]), _interval_cell(rate.value, *rate.interval)]
        rows.append(Row(pair[0].concept, [*cells, _bank_cell(one["accuracy"]), _ranking_cell(one)]))
    return Sheet("Rates and their 95 % intervals", columns, rows)


def _bank_cell(rate: Mapping[str, Any]) -> Cell:
    if rate["value"] is None:
        return Cell(Markup('–<span class="interval">{}</span>').format(rate.get("why", "")), "wrap")
    return _interval_cell(rate["value"], rate["low"], rate["high"])


def _interval_cell(value: float, low: float, high: float) -> Cell:
    if not np.isfinite(value):
        return Cell(Markup("–"))
    text = Markup('{}<span class="interval">[{}, {}]</span>')
    return Cell(text.format(percent(value), percent(low), percent(high)))


def _ranking_cell(one: Mapping[str, Any]) -> Cell:
    found = ranking(one)
    if found is None:
        return Cell(Markup("–"))
    low, high = found.interval()
    text = Markup("{}").format(plain(found.auroc))
    # No interval where the normal approximation has none: one sample, or no error.
    if found.standard_error > 0:
        text += Markup('<span class="interval">[{}, {}]</span>').format(plain(low), plain(high))
    return Cell(text)


def _counts_table(found: Mapping[str, Any]) -> Sheet:
    heads = ("TN", "FP", "FN", "TP", "Asked, with", "Asked, without")
    rows = []
    for sensitivity, specificity in rates(found):
        counts = found["concepts"][sensitivity.concept]["counts"]
        asked = [f"{rate.asked:,} of {rate.of:,}" for rate in (sensitivity, specificity)]
        texts = [*(f"{counts[key]:,}" for key in ("tn", "fp", "fn", "tp")), *asked]
        rows.append(Row(sensitivity.concept, [Cell(Markup(text)) for text in texts]))
    return Sheet("Answers by outcome", [Column("Concept", True), *map(Column, heads)], rows)


def _claims_table(found: Mapping[str, Any]) -> Sheet:
    kinds = {"holds": "yes", "fails": "no"}
    rows = [
        Row(claim["text"], [Cell(words.claim_verdict(claim), f"text wrap {kinds.get(claim['decided'], '')}")])
        for claim in found["claims"]
    ]
    return Sheet("Claims and verdicts", [Column("Claim", True), Column("Verdict", True)], rows)


def _strategies_table(comparison: Mapping[str, Any]) -> Sheet:
    """Questions that each strategy needs to come down to a level of uncertainty, mean and interval over repetitions."""
    reached = {name: one["questions_to"] for name, one in comparison["strategies"].items()}
    levels = list(next(iter(reached.values())))
    columns = [Column("Strategy", True), *(Column(f"to {float(level):.2f}") for level in levels)]
    rows = [Row(name, [_questions_cell(one[level]) for level in levels]) for name, one in reached.items()]
    return Sheet("Questions until the uncertainty has come down", columns, rows)


def _questions_cell(one: Mapping[str, Any]) -> Cell:
    if one["value"] is None:
        return Cell(Markup("not always"))
    text = '{:.0f}<span class="interval">[{:.0f}, {:.0f}]</span>'
    return Cell(Markup(text).format(one["value"], one["low"], one["high"]))
