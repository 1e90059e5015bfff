"""What a model is worth against a baseline that never looks at an image, and what `score` and `compare` print within 80 columns.

The sentences are in `templates/worth.html.j2`, and are the same on the page and in the terminal.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group
from rich.text import Text

from retinabench.core.results import JsonObject, json_content
from retinabench.metrics.classification import false_alarm_price
from retinabench.metrics.image_sets import DEFAULT, SET_LABELS
from retinabench.metrics.intervals import Interval
from retinabench.metrics.registry import SCORES
from retinabench.metrics.rejection import Rejections
from retinabench.metrics.scoring import FEW_PATIENTS, POOR, Baseline, Kind, Scores, SetScores, judge
from retinabench.reports import grades
from retinabench.reports.toolkit import tables as toolkit
from retinabench.reports.toolkit.tables import Cell, Column, NumberFormat, Quantity, Row, Table, p_value

if TYPE_CHECKING:
    from retinabench.metrics.comparison import Comparison

TELLING = 0.05
NAMED = 4  # scores that a sentence names
USED = ("accuracy", "sensitivity", "specificity", "auroc", "failure_auroc", "ece_positive_class")
COLUMNS = ("auroc", "accuracy", "sensitivity", "referral_accuracy_area")
SETS = ("in_domain", "shifted", "joint")
SIGNED = NumberFormat(3, signed=True)
LIST_SCHEMA = "retinabench.scores-list/1"
Controls = Mapping[str, Mapping[str, float]]  # Name of a control -> score -> value.


def scores_table(
    names: Sequence[str], scores: Sequence[Scores], controls: Mapping[str, Controls] | None = None
) -> Group:
    groups: dict[str, list[Scores]] = {}
    for name, one in zip(names, scores, strict=True):
        groups.setdefault(name, []).append(one)
    heads = [SCORES[score].heading for score in COLUMNS]  # Long ones would take the width of the names.
    columns = [Column(head.replace(", ", ",\n").replace("Referral ", "Referral\n")) for head in heads]
    blocks, said = [], []
    for key in (key for key in SETS if any(key in one.sets for one in scores)):
        rows = []
        for name, files in groups.items():
            found = [one[key] for one in files if key in one.sets]
            if found:
                rows.append(Row(name, [_score_cell(found, score) for score in COLUMNS]))
                facts = worth_of_scores(name, key, found) if key != "joint" else None
                said += [sentences(facts)] if facts is not None else []
        for control, values in (controls or {}).get(key, {}).items():
            cells = [Cell.number(values[score]) if score in values else Cell() for score in COLUMNS]
            rows.append(Row(control, cells, control=True))
        blocks.append(toolkit.Block(columns, rows, SET_LABELS[key]))
    seeds = len(groups) < len(scores)
    unit = "patient" if all(one.metadata.get("rows") == "patients" for one in scores) else "image"
    note = f"Per {unit}. Below each value: its 95 % interval over patients"
    note += " (of several seeds the mean of theirs); ± its standard error over seeds." if seeds else "."
    lines = [Text(re.sub(r"\bimage(s?)\b", rf"{unit}\1", line) + "\n") for line in said]
    return Group(*lines, Table("", blocks, note=note), *_grade_tables(groups))


def _grade_tables(groups: Mapping[str, Sequence[Scores]]) -> list[Table]:
    tables: list[Table] = []
    for name, files in groups.items():
        found = {key: [own for one in files if key in one.sets and (own := one[key].grades)] for key in SETS}
        known = {SET_LABELS[key]: seeds for key, seeds in found.items() if seeds}
        if known:
            caption = "Grades" if len(groups) == 1 else f"Grades: {name}"
            sets = (grades.sets_table(label, seeds[0], subgroups=False) for label, seeds in known.items())
            tables += [table for table in (grades.scores_table(caption, known), *sets) if table]
    return tables


def _score_cell(sets: Sequence[SetScores], score: str) -> Cell:
    found = [one[score] for one in sets if score in one.scores]
    if not found or not all(math.isfinite(one.value) for one in found):
        return toolkit.UNDEFINED
    return Cell(toolkit.pooled(found)) if len(found) > 1 else Cell.of(found[0])


def comparison_table(found: Comparison) -> Group:
    """Return for each set which model is better, and every score: a, b, and a - b with its interval."""
    lines = []
    for key, one in found.sets.items():
        if found.margin is not None or all(math.isnan(score.p_adjusted) for score in one.scores.values()):
            continue
        parts, total = [], len(one.scores)
        for side, model in (("a", found.a), ("b", found.b)):
            if names := [name for name, score in one.scores.items() if score.better == side]:
                shown = ", ".join(names[:NAMED]) + ", …" * (len(names) > NAMED)
                parts.append(f"“{model}” is better by {shown} ({len(names)} of {toolkit.counted(total, 'score')})")
        if not parts:
            parts = [f"no difference is shown by {toolkit.counted(total, 'score')}"]
        elif any(score.better is None for score in one.scores.values()):
            parts.append("the others show no difference")
        lines.append(Text(f"{SET_LABELS[key]}: {'; '.join(parts)}.\n", style="bold"))
    return Group(*lines, _differences(found))


def _differences(found: Comparison) -> Group:
    columns = [Column(title) for title in ("a", "b", "a - b", "p", "better")]
    blocks = []
    for key, one in found.sets.items():
        rows = []
        for name, score in one.scores.items():
            gap = Quantity(score.difference, score.low, score.high)
            numbers = [Cell.number(one, form=gap.form()) for one in (score.a, score.b)]
            cells = [*numbers, Cell(gap, SIGNED), Cell(p_value(score.p_adjusted)), Cell(score.better or "")]
            rows.append(Row(name, cells))
        blocks.append(toolkit.Block(columns, rows, SET_LABELS[key]))
    note = f"a = {found.a}\nb = {found.b}"
    if any(len(one.scores) > 1 for one in found.sets.values()):
        note += "\np is corrected for the number of scores of a set (Westfall and Young); `--score` tests one alone"
    margins = [
        Text(
            f"Non-inferior. {SCORES[name].label}, {SET_LABELS[key].lower()}: a is shown to be less than {found.margin:g} worse than b.\n"
            if score.non_inferior
            else f"Not shown. {SCORES[name].label}, {SET_LABELS[key].lower()}: a may be {found.margin:g} or more worse than b.\n"
        )
        for key, one in found.sets.items()
        for name, score in one.scores.items()
        if score.non_inferior is not None
    ]
    return Group(*margins, Table("", blocks, note=note))


def recalibration_table(found: Comparison, method: str) -> Group:
    """Return what a map of the probabilities did to the test images: a is after it, b before it."""
    lines = []
    for key, one in found.sets.items():
        nll = one.scores["nll"]
        before, after, low, high = (SIGNED(x).lstrip("+") for x in (nll.b, nll.a, nll.low, nll.high))
        verdict = {"a": "Better.", "b": "Worse."}.get(nll.better or "", "No gain is shown.")
        change = f"{method} changes the NLL from {before} to {after}, by {SIGNED(nll.difference)} [{low}, {high}].\n"
        lines.append(Text(f"{verdict} {SET_LABELS[key]}: {change}", style="bold"))
    return Group(*lines, _differences(replace(found, a="after the map", b="before it")))


def rejections_table(method: str, found: Mapping[str, Rejections]) -> Group:
    tables = [rejection_tables(one, f"{method}, {SET_LABELS[key].lower()}") for key, one in found.items()]
    return Group(*(table for of_set in tables for table in of_set))


def rejection_tables(one: Rejections, caption: str) -> list[Table]:
    """Return the scores by fold, where there are folds, and the uncertainties compared."""
    column = Column(f"mean of {one.folds} folds ± standard error")
    rows = [Row(SCORES[name].label, [Cell.number(each.mean, error=each.error)]) for name, each in one.scores.items()]
    folds = [Table.of(caption, [column], rows, row_header="score")] if rows else []
    columns = [Column("RC-Index", direction="higher"), Column("first\nminus this")]
    columns += [Column("steps\nthat rise"), Column("largest\nfall")]
    rows = []
    for name, found in one.uncertainties.items():
        difference, steady = found.difference, found.steadiness
        p = f"p {p_value(found.p_holm)}"
        known = math.isfinite(difference.difference)
        cells = [
            Cell.number(found.index, found.low, found.high, found.folds.error),
            Cell.number(*difference[:3], form=SIGNED, below=p) if known else Cell(""),
            Cell(toolkit.percent(steady.rises), below=f"p {p_value(steady.rises_p)}"),
            Cell(NumberFormat(4)(steady.fall), below=f"p {p_value(steady.fall_p)}"),
        ]
        rows.append(Row(name.replace("_", " "), cells))
    empty = [Cell("")] * (len(columns) - 1)
    controls = (("random", 0.0), ("oracle", one.oracle))
    rows += [Row(name, [Cell.number(value), *empty], control=True) for name, value in controls]
    note = "p of a difference: Holm's; of steps and falls: of a curve as steady in random order."
    if one.folds > 1:
        note += (
            " Each fold is ordered by itself: with folds of one size the RC-Index is the mean over folds (± its standard "
            "error), which is also that of the vertical average."
        )
    return [*folds, Table.of(f"{caption}: uncertainties", columns, rows, row_header="uncertainty", note=note)]


def scores_json(
    found: Sequence[Scores], names: Sequence[str], compared: Sequence[Mapping[str, Rejections]] = ()
) -> JsonObject:
    files = [{**one.to_dict(), "entry": name} for one, name in zip(found, names, strict=True)]
    for file, rejections in zip(files, compared, strict=False):
        if rejections:
            file["uncertainties"] = json_content(rejections)
    return files[0] if len(files) == 1 else {"schema": LIST_SCHEMA, "files": files}


@dataclass(frozen=True)
class Worth:
    """The facts about one method on one set: the verdict (see `judge`), the baseline of the first seed, and the scores that sentences name."""

    method: str
    set: str
    kind: Kind
    baseline: Baseline
    positives: int
    scores: dict[str, Quantity]

    @property
    def few(self) -> bool:
        return 0 < self.baseline.positive_patients < FEW_PATIENTS

    @property
    def headline(self) -> tuple[str, bool, bool]:
        return self.kind, self.few, self.ranks and self.kind == "not shown"

    @property
    def ranks(self) -> bool:
        return self.scores["auroc"].sign(0.5) > 0 and self.scores["auroc"].value >= POOR

    @property
    def usual_accuracy(self) -> str:
        """The accuracy of always giving one answer, with the digits of the model's."""
        return self.scores["accuracy"].form(NumberFormat(2))(self.baseline.accuracy)

    @property
    def unequal_harms(self) -> bool:
        return self.baseline.threshold != DEFAULT

    @property
    def harm_ratio(self) -> float:
        return 1 / false_alarm_price(self.baseline.threshold)

    @property
    def called(self) -> float:
        larger = self.baseline.accuracy
        prevalence = larger if self.baseline.answer == "referable" else 1 - larger
        false = 1 - self.scores["specificity"].value
        return self.scores["sensitivity"].value * prevalence + false * (1 - prevalence)

    @property
    def misleading(self) -> bool:
        failures = self.scores["failure_auroc"]
        return failures.bounded and failures.sign(0.5) < 0

    @property
    def correction_tells(self) -> bool:
        """Whether a correction of the prior makes the probabilities useful, or much better, without harm to the accuracy."""
        corrected, skill = self.baseline.corrected, self.scores["brier_skill"].value
        if corrected is None or corrected.accuracy < self.scores["accuracy"].value:
            return False
        return corrected.brier_skill > max(0, skill + TELLING)


def worth(method: str, name: str, one: SetScores, get: Callable[[str], Quantity]) -> Worth | None:
    if one.baseline is None:
        return None
    scores = {key: get(key) for key in (*USED, "net_benefit_gain", "brier_skill")}
    judged = ("sensitivity", "specificity", "auroc", "net_benefit_gain", "brier_skill")
    kind = judge(**{key: Interval(scores[key].value, scores[key].low, scores[key].high) for key in judged})
    return Worth(method, name, kind, one.baseline, one.positives, scores)


def worth_of_scores(method: str, name: str, files: Sequence[SetScores]) -> Worth | None:
    def get(key: str) -> Quantity:
        if files[0].baseline is None:
            return Quantity(np.nan)
        if key in ("net_benefit_gain", "brier_skill"):
            return toolkit.pooled([getattr(one.baseline, key) for one in files])
        return toolkit.pooled([one[key] for one in files])

    return worth(method, name, files[0], get)


def sentences(one: Worth) -> str:
    def show(quantity: Quantity, style: str = "plain") -> str:
        form = quantity.form(NumberFormat(2, signed=style == "signed"))
        return f"{form(quantity.value)} {form.interval(quantity.low, quantity.high)}".rstrip()

    template = toolkit.macros("worth.html.j2", package="retinabench.reports.evaluation")
    said = (
        template.lead(one), template.warning(one), template.sentence(one, show), template.details(one, show),
        template.uncertainty(one, show),
    )  # fmt: skip
    return " ".join(html.unescape(" ".join(said)).split())
