"""The page, tables and first lines of `clinic`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path, PurePath
from typing import Literal

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from rich.console import Group, RenderableType
from rich.text import Text

from retinabench.core.files import write_bytes, write_json
from retinabench.metrics.clinical.decision_curve import MissedImage
from retinabench.metrics.clinical.groups import RATES, Between, GroupRate, Subgroup, Subgroups
from retinabench.metrics.clinical.screening import JudgedTable, ScreeningReport, SetScreening
from retinabench.metrics.clinical.screening_table import PolicyGrid
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.intervals import Interval
from retinabench.metrics.planning import StudyPlan
from retinabench.predictions.values import SEVERE
from retinabench.reports.evaluation.figures import grade_section
from retinabench.reports.toolkit import figures as style
from retinabench.reports.toolkit import pages, tables
from retinabench.reports.toolkit.figures import LegendEntry, Line, Mark, Panel
from retinabench.reports.toolkit.pages import explorer
from retinabench.reports.toolkit.tables import Cell, Column, Emphasis, NumberFormat, Quantity, Row, Table, macros

AUTHORS = "to be answered by the authors"
GUIDELINES = {"stard": "STARD", "tripod": "TRIPOD+AI", "claim": "CLAIM"}
SOURCES = (
    "Items by the numbers of STARD 2015 (Bossuyt et al., BMJ 351:h5527; STARD-AI, Nat. Med. 2025, adds items on data, algorithm and "
    "fairness to it), TRIPOD+AI (Collins et al., BMJ 385:e078378, 2024) and CLAIM (Mongan et al., Radiol. Artif. Intell. "
    "2:e200029, 2020), in our own words."
)
MORE_WORK = 1.5  # times the share of images that was asked for
# Whether uncertainty can choose what the expert reads on a set, from no to yes.
Kind = Literal[
    "one class", "inverted", "never", "blind", "no referral", "more work", "nothing missed", "worse", "reader", "beaten", "unclear", "same", "yes"
]  # fmt: skip
SIGNED, EFFECT = NumberFormat(2, signed=True), NumberFormat(2)
BOTH = ("sensitivity", "specificity")
READINGS = {
    "retained_only": "Images that nobody reads",
    "screen_positive": "Images to be read count as positive",
    "expert": "Read by an expert who never errs",
    "reader": "Read by the stated reader",
}
HEIGHT = 300
MODEL, READER = Mark(0, 0), Mark(1, 1)
MISSED = 10  # Missed images that are listed; the rest are in the JSON and on the page.
TITLE = "Can this model's uncertainty choose what the expert reads?"
FIRST_MISSED, MOST_MISSED = 15, 1000


def checklist(report: ScreeningReport) -> list[dict[str, str]]:
    """Return the items: their numbers in the guidelines ("" where a guideline has none), topic, and the answer."""
    one = next(iter(report.sets.values()))
    known = report.threshold
    cut = f"{known.comparison}; " + (
        f"{known.rule} on the {known.chosen_on} split" if known.rule else "given beforehand, as far as the file says"
    )
    table = one.images.table
    counts = f"{table.tp} true positive, {table.fp} false positive, {table.fn} false negative, {table.tn} true negative images"
    clusters = "intervals in closed form, clustered by patient"
    if one.patients is None:
        clusters = "closed form; the file has no patients, so that images are taken as independent"
    groups = one.subgroups.columns if one.subgroups else []
    subgroups = f"by {', '.join(groups)}, with simultaneous intervals" if groups else "no further columns in the file"
    severity = "no grades in the file"
    if one.missed.severe is not None:
        severity = f"{one.missed.severe_images} of {table.tp + table.fn} referable images have grade 3 or 4"
    gradable = "counted as positive and left out" if one.ungradable else "no ungradable images in the file"
    external = "a shifted set is reported beside the in-domain one" if "shifted" in report.sets else AUTHORS
    rate = report.referral
    output = f"probability and uncertainty ({rate.uncertainty.replace('_', ' ')}); threshold: {cut}"
    rows = [
        ("6, 8", "6a, 6b", "8", "Eligibility, setting and dates", AUTHORS),
        ("10b", "8a", "14", "Reference standard and who read it", AUTHORS),
        ("12a", "15", "", "Model output and how its threshold was chosen", output),
        ("14", "12e", "28", "Measures of performance", "missed disease, sensitivity, specificity, AUROC, predictive values, calibration, net benefit"),
        ("14", "12e", "29", "Uncertainty of the estimates", clusters),
        ("15", "11", "13", "Indeterminate or missing results", gradable),
        ("17", "14, 23a", "30", "Variability and fairness: subgroups", subgroups),
        ("18", "10", "19", "Sample size", "not justified by this file; “retinabench plan” states what a question needs"),
        ("19", "20a", "33", "Flow of participants", AUTHORS),
        ("20", "20b", "34", "Characteristics of participants", "those in the columns of the file" if groups else AUTHORS),
        ("21a", "", "", "Severity of the disease", severity),
        ("23", "23a", "36", "Cross tabulation against the reference", counts),
        ("24", "23a", "36", "Estimates with intervals", "see the tables of sensitivity, specificity and predictive values"),
        ("", "", "32", "Data from another source", external),
        ("", "", "37", "Failures, case by case", f"{len(one.missed.images)} missed images listed by id"),
        ("", "12c, 22", "22", "The model and its version", AUTHORS),
        ("", "18f", "", "Code and model availability", AUTHORS),
        ("26", "26", "38", "Limitations", AUTHORS),
        ("28, 29", "18c, 18d", "40, 41", "Registration and protocol", AUTHORS),
    ]  # fmt: skip
    return [dict(zip((*GUIDELINES, "topic", "answer"), row, strict=True)) for row in rows]


def checklist_table(items: Sequence[Mapping[str, str]]) -> Table:
    columns = [Column("Answer", text=True), Column("Numbers of the item", text=True)]
    rows = []
    for item in items:
        numbers = "; ".join(f"{name} {item[key]}" for key, name in GUIDELINES.items() if item[key])
        rows.append(Row(item["topic"], [Cell(item["answer"]), Cell(numbers)], control=item["answer"] == AUTHORS))
    return Table.of("Reporting checklist", columns, rows, row_header="Item", note=SOURCES)


@dataclass(frozen=True)
class SetAnswer:
    """The answer on one set, and the numbers that the sentences of `say.html.j2` state."""

    name: str
    kind: Kind
    one: SetScreening

    @property
    def label(self) -> str:
        return SET_LABELS[self.name]

    @property
    def positives(self) -> int:
        return self.one.images.table.tp + self.one.images.table.fn

    @property
    def missed(self) -> Interval:
        """Share of the referable images that are missed in the end, with the reader's misses."""
        found = self.one.readings["reader"]["sensitivity"]
        return Interval(1 - found.value, 1 - found.high, 1 - found.low)

    @property
    def ungradable_hours(self) -> float:
        found, work = self.one.ungradable, self.one.workload
        if found is None:
            return 0.0
        graded = self.one.images.table.counts("prevalence")[1]
        return 1000 * work.images_per_patient * found.images / graded / work.images_per_hour

    @property
    def failing(self) -> list[tuple[Subgroup, str]]:
        groups = self.one.subgroups
        return [(group, rate) for rate in RATES for group in groups.failing(rate)] if groups else []

    @property
    def failing_groups(self) -> list[tuple[str, list[str]]]:
        """Names of these groups with their rates, as the first line has them."""
        names = {"sensitivity": "sensitivity", "specificity": "specificity", "auroc": "AUROC"}
        rates: dict[str, list[str]] = {}
        for group, rate in self.failing:
            rates.setdefault(group.name, []).append(f"{names[rate]} {tables.TWO_DIGITS(group.rates[rate].alone.value)}")
        return list(rates.items())

    @property
    def small(self) -> int:
        groups = self.one.subgroups.groups if self.one.subgroups else ()
        return sum(bool(group.rates["sensitivity"].too_small) for group in groups)

    @property
    def new_sites(self) -> list[Between]:
        found = self.one.subgroups.between if self.one.subgroups else ()
        return [one for one in found if one.new_site is not None and one.rate in ("sensitivity", "specificity")]

    @property
    def useful(self) -> tuple[float, float] | None:
        curve = self.one.decision_curve
        if curve.low is None or curve.over_all_low is None:
            return None
        better = (curve.low > 0) & (curve.over_all_low > 0)
        runs = np.split(np.arange(len(better)), np.flatnonzero(np.diff(better)) + 1)
        longest = max((run for run in runs if better[run[0]]), key=len, default=None)
        if longest is None:
            return None
        return float(curve.threshold[longest[0]]), float(curve.threshold[longest[-1]])

    per_thousand, share, signed, rate = (
        staticmethod(lambda one, form=form: Quantity(one.value, one.low, one.high).whole_html(form))
        for form in (NumberFormat(1, signed=True, scale=1000), tables.PERCENT, SIGNED, tables.TWO_DIGITS)
    )


def answer_sets(report: ScreeningReport) -> list[SetAnswer]:
    return [SetAnswer(name, _kind(one, report), one) for name, one in report.sets.items()]


def _kind(one: SetScreening, report: ScreeningReport) -> Kind:
    table, rate, caught = one.images.table, one.read, one.missed.caught
    if not (table.tp + table.fn and table.tn + table.fp):
        return "one class"
    if one.auroc.high < 0.5:
        return "inverted"
    if table.tp + table.fp == 0:
        return "never"
    if not one.auroc.low > 0.5 and not one.auroc.value > 0.99:
        return "blind"
    if one.referred == 0:
        return "no referral"
    if report.referral.rate and one.read_here > MORE_WORK * report.referral.rate:
        return "more work"
    if table.fn == 0:
        return "nothing missed"
    if caught.high < rate:
        return "worse"
    gain = one.simple_rule.gain
    if not caught.low > rate:
        return "beaten" if gain.high < 0 else "unclear"
    if 1 - one.readings["reader"]["sensitivity"].value >= one.missed.alone.value:
        return "reader"
    if one.simple_rule.same:
        return "same"
    return "beaten" if gain.high < 0 else "yes" if gain.low > 0 else "unclear"


def rates_table(answer: SetAnswer, report: ScreeningReport) -> Table:
    one = answer.one
    columns = [Column("Sensitivity"), Column("Specificity"), Column("Goal", text=True)]
    rows: list[Row] = []
    patients = "per patient", " (any eye)", one.patients, one.patient_readings
    for unit, note, judged, readings in (patients, ("per image", "", one.images, one.readings)):
        if judged is not None and readings is not None:
            cells = [*_rates(judged.rates), _goal(judged, report)]
            rows.append(Row(f"Model alone, {unit}{note}", cells, rule=bool(rows)))
        for name, rates in (readings or {}).items():
            stated = name == "screen_positive" and unit == "per image"
            cells = [*_rates(rates), _goal(one.pathway, report) if stated else Cell()]
            rows.append(Row(f"{READINGS[name]}, {unit}", cells))
    sensitivity, specificity = report.stated.goal
    note = (
        f"The reader has sensitivity {report.reader[0]:g} and specificity {report.reader[1]:g} (stated). Goal: sensitivity "
        f"{sensitivity:g} at specificity {specificity:g} (stated); “met” means that both lower 97.5 % bounds reach it."
    )
    caption = f"{answer.label}: sensitivity and specificity"
    return Table.of(caption, columns, rows, row_header="Reading", note=note)


def _rates(found: Mapping[str, Interval]) -> list[Cell]:
    return [Cell.of(found[name], tables.TWO_DIGITS) for name in BOTH]


def _goal(judged: JudgedTable, report: ScreeningReport) -> Cell:
    found = judged.goals["stated"]
    if any(map(isnan, found["estimate"])):
        return Cell("not known")
    if report.threshold.same_images:
        return Cell("not judged: threshold chosen here")
    if found["bound_met"]:
        return Cell("met, with bounds", emphasis="good")
    return Cell("estimates only") if found["estimate_met"] else Cell("not met", emphasis="bad")


def missed_table(answer: SetAnswer, images: Sequence[MissedImage]) -> Table:
    graded = any(one.grade is not None for one in images)
    known = any(one.patient_id is not None for one in images)
    columns = [Column("Patient", text=True)] if known else []
    columns += [Column("Grade")] if graded else []
    columns += [Column("P(referable)"), Column("Uncertainty")]
    rows = []
    for one in images:
        cells = [Cell(one.patient_id or "")] if known else []
        if graded:
            severe = one.grade is not None and one.grade >= SEVERE
            cells.append(Cell("" if one.grade is None else str(one.grade), emphasis="bad" if severe else ""))
        cells += [Cell.number(one.prob), Cell.number(one.uncertainty)]
        rows.append(Row(one.image_id, cells))
    return Table.of(f"{answer.label}: missed images", columns, rows, row_header="Image")


def predictive_table(answer: SetAnswer) -> Table:
    heads = {
        "ppv": "PPV, model alone", "npv": "NPV, model alone", "ppv_with_reader": "PPV, with reader",
        "npv_with_reader": "NPV, with reader",
    }  # fmt: skip
    rows = [
        Row(f"{100 * float(prevalence):g} %", [Cell.of(values[name], tables.TWO_DIGITS) for name in heads])
        for prevalence, values in answer.one.predictive_values.items()
    ]
    ratios = [
        f"{who}, of a call {_ratio(one['positive'])}, of none {_ratio(one['negative'])}"
        for who, one in zip(("model alone", "with reader"), answer.one.likelihood_ratios.values(), strict=True)
    ]
    caption = f"{answer.label}: predictive values at stated prevalences, per image"
    note = f"Likelihood ratios, whatever the prevalence: {'; '.join(ratios)}."
    return Table.of(caption, [Column(head) for head in heads.values()], rows, row_header="Prevalence", note=note)


def _ratio(one: Interval) -> str:
    if isnan(one.value):
        return "not defined"
    if np.isinf(one.value):
        return f"at least {tables.TWO_DIGITS(one.low)}"
    return f"{tables.TWO_DIGITS(one.value)} {tables.TWO_DIGITS.interval(one.low, one.high)}".strip()


def subgroup_table(answer: SetAnswer, groups: Subgroups, column: str) -> Table:
    heads = (
        "Sensitivity", "Specificity", "AUROC", "Read", "Observed − predicted", "Patients", "Referable images",
    )  # fmt: skip
    rows = []
    for one in groups.of(column):
        rates = [group_cell(one.rates[name]) for name in RATES]
        further = [Cell.of(one.referral, tables.PERCENT), Cell.of(one.calibration, SIGNED)]
        counts = [Cell(f"{one.patients:,}"), Cell(f"{one.positives:,}")]
        rows.append(Row(one.value, [*rates, *further, *counts]))
    note = f"Cut {groups.bins[column]}." if column in groups.bins else ""
    caption = f"{answer.label}: {column}"
    return Table.of(caption, [Column(head) for head in heads], rows, row_header=column, note=note)


def between_table(answer: SetAnswer) -> Table | None:
    rows = []
    for one in answer.one.subgroups.between if answer.one.subgroups else ():
        new = Cell() if one.new_site is None else Cell.of(one.new_site.new_site, tables.TWO_DIGITS)
        name = {"auroc": "AUROC", "observed_minus_predicted": "observed − predicted"}.get(one.rate, one.rate)
        emphasis: Emphasis = "bad" if one.gap.low > 0 else ""
        gap = Cell.number(one.gap.value, one.gap.low, one.gap.high, form=tables.TWO_DIGITS, emphasis=emphasis)
        rows.append(
            Row(
                f"{one.column}, {name}",
                [*(Cell(name.removeprefix(f"{one.column}: ")) for name in (one.lowest, one.highest)), gap, new],
            )
        )
    if not rows:
        return None
    heads = Column("Lowest", text=True), Column("Highest", text=True), Column("Gap"), Column("A new site")
    note = (
        "Gap: highest less lowest; its interval holds for all columns at once. The gaps of sensitivity and specificity together are the "
        "violation of equalised odds. A new site: where its rate lies with 95 % (random effects), for columns of sites."
    )
    return Table.of(
        f"{answer.label}: largest gaps between groups", heads, rows, row_header="Column and rate", note=note
    )


def readers_table(answer: SetAnswer) -> Table | None:
    found = answer.one.readers
    if not found:
        return None
    names = list(next(iter(found.values())).readers)

    def row(
        name: str, of: Mapping[str, Interval], form: NumberFormat = tables.TWO_DIGITS, *, rule: bool = False
    ) -> Row:
        return Row(name, [Cell.of(of[rate], form) if rate in of else Cell() for rate in BOTH], rule=rule)

    rows = [row(f"Reader {name}", {rate: one.readers[name] for rate, one in found.items()}) for name in names]
    rows += [
        row("Mean reader", {rate: one.mean_reader for rate, one in found.items()}, rule=True),
        row("Model alone", {rate: one.model for rate, one in found.items()}),
        row("Model less mean reader", {rate: one.model_minus_mean for rate, one in found.items()}, SIGNED),
    ]
    note = "Images that every reader read. Intervals of the mean reader and of the difference hold for other patients and other readers."
    heads = [Column(rate.capitalize()) for rate in BOTH]
    return Table.of(f"{answer.label}: the model beside the readers", heads, rows, row_header="Who", note=note)


def group_cell(rate: GroupRate) -> Cell:
    alone = rate.alone
    if rate.too_small:
        count, few, _ = rate.too_small.partition(" with a ")
        return Cell("too small to say", below=count if few else tables.TWO_DIGITS.interval(alone.low, alone.high))
    worse = rate.gap.high < 0
    return Cell.number(
        alone.value, alone.low, alone.high, form=tables.TWO_DIGITS, emphasis="bad" if worse else "",
        note="worse" if worse else "",
    )  # fmt: skip


def ungradable_table(answer: SetAnswer) -> Table | None:
    """Return the rates with ungradable images left out and counted as positive; None where all can be graded."""
    ungradable = answer.one.ungradable
    if ungradable is None:
        return None
    columns = [Column("Sensitivity"), Column("Specificity")]
    rows = [
        Row("Ungradable images left out", _rates(ungradable.excluded)),
        Row("Ungradable images count as positive", _rates(ungradable.as_referred)),
    ]
    form = tables.PERCENT.fitted(0.05)
    note = (
        f"Ungradable: {form(ungradable.among_referable.value)} of the referable images, "
        f"{form(ungradable.among_healthy.value)} of the others."
    )
    return Table.of(f"{answer.label}: ungradable images", columns, rows, row_header="Counting", note=note)


def counts_table(sets: Sequence[SetAnswer]) -> Table:
    rows = []
    for answer in sets:
        one = answer.one
        images = one.images.table.counts("prevalence")[1]
        texts = [
            f"{images:,}",
            f"{one.patients.table.counts('prevalence')[1]:,}" if one.patients else "not given",
            f"{answer.positives:,} ({tables.percent(answer.positives / images)})",
            "no grades" if one.missed.severe_images is None else f"{one.missed.severe_images:,}",
            f"{one.ungradable.images:,}" if one.ungradable else "0",
        ]
        rows.append(Row(answer.label, [Cell(text) for text in texts]))
    heads = ("Images", "Patients", "Referable images", "Severe images", "Ungradable")
    return Table.of("Test images", [Column(head) for head in heads], rows, row_header="Set")


def missed_panel(one: SetScreening) -> Figure:
    figure, [[axes]] = style.canvas(style.WIDTH, HEIGHT)
    referred, missed = one.missed.curve["referred"], one.missed.curve["missed"]
    axes.plot([0, 1], [missed[0], 0], color=style.MUTED, linewidth=1.0, linestyle=(0, (1, 2)))
    axes.plot(referred, missed, color=style.BAD, zorder=3)
    rate, share = one.read_here, one.missed.referable
    if one.referred and np.isfinite(share.low):
        error = [[share.value - share.low], [share.high - share.value]]
        axes.errorbar(
            [rate], [share.value], yerr=error, color=style.INK, marker="o", markersize=6, linewidth=1.2, zorder=4
        )
    top = float(np.nanmax([missed[0], share.high if np.isfinite(share.high) else 0, 0.02]))
    axes.set(xlim=(0, 1), ylim=(0, 1.08 * top), xlabel="read by the expert", ylabel="referable images missed")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(
            PercentFormatter(1, decimals=0 if top > 0.05 or axis is axes.xaxis else 1, symbol=" %")
        )
    style.light_grid(axes, "y")
    return figure


def decision_panel(one: SetScreening) -> Figure:
    figure, [[axes]] = style.canvas(style.WIDTH, HEIGHT)
    curve, reader = one.decision_curve, one.with_reader
    axes.plot(curve.threshold, curve.treat_all, color=style.MUTED, linewidth=1.0, linestyle=(0, (5, 2)))
    axes.axhline(0, color=style.MUTED, linewidth=1.0)
    lines = [Line(MODEL, curve.threshold, curve.model, curve.low, curve.high)]
    if one.referred:
        lines.append(Line(READER, reader.threshold, reader.model, reader.low, reader.high))
    style.draw_lines(axes, lines)
    # A single patient has no interval, and its ends are NaN.
    ends = [end for line in lines for end in (line.y, line.high) if end is not None]
    highest = float(np.nanmax([0.02, *np.concatenate(ends)]))
    axes.set(
        xlim=(curve.threshold[0], curve.threshold[-1]), ylim=(-0.25 * highest, 1.05 * highest),
        xlabel="threshold probability", ylabel="net benefit",
    )  # fmt: skip
    style.light_grid(axes, "y")
    return figure


def calibration_panel(one: SetScreening) -> Figure:
    figure, [[axes]] = style.canvas(style.WIDTH, style.WIDTH)
    axes.plot([0, 1], [0, 1], color=style.MUTED, linewidth=0.7, linestyle=(0, (2, 3)))
    if (smooth := one.smooth_calibration) is not None:
        style.draw_lines(axes, [Line(MODEL, smooth.prob, smooth.observed, smooth.low, smooth.high)])
    points = [(p.forecast, p.observed.value, p.observed.low, p.observed.high) for p in one.calibration.curve]
    x, y, low, high = np.array(points).T
    ends = np.nan_to_num(np.stack([y - low, high - y]))
    axes.errorbar(x, y, yerr=np.maximum(ends, 0), color=style.INK, fmt="o", markersize=4, elinewidth=0.9, zorder=4)
    axes.set(
        xlim=(0, 1), ylim=(0, 1.005), xlabel="predicted P(referable)", ylabel="observed share referable", aspect="equal"
    )
    axes.set_xticks(np.linspace(0, 1, 6))
    axes.set_yticks(np.linspace(0, 1, 6))
    return figure


def clinic_summary(report: ScreeningReport) -> Group:
    answers, say = answer_sets(report), macros("say.html.j2", package="retinabench.reports")
    parts: list[RenderableType] = [Text(_plain(say.answer(one, report, len(answers) > 1)), "bold") for one in answers]
    parts.append(Text(""))
    for answer in answers:
        facts = [
            ("Missed", say.missed(answer)), ("Thresholds", say.thresholds(report, answer)), ("Cost", say.cost(answer)),
            ("For whom", say.whom(answer)), ("Worth", say.worth(answer)),
        ]  # fmt: skip
        if answer.one.readers:
            facts.append(("Readers", say.readers(answer)))
        if answer.one.ungradable is not None:
            facts.append(("Ungradable", say.ungradable(answer)))
        parts += [*(Text.assemble((f"{name}: ", "bold"), _plain(text)) for name, text in facts), Text("")]
        if images := answer.one.missed.images:
            parts.append(missed_table(answer, images[:MISSED]))
            if len(images) > MISSED:
                parts.append(Text(f"and {len(images) - MISSED} more: --json or --out lists them all\n"))
        parts.append(rates_table(answer, report))
        if answer.one.subgroups is not None and answer.one.subgroups.groups:
            parts.append(_groups_table(answer, answer.one.subgroups.groups))
        parts.append(predictive_table(answer))
    return Group(*parts)


def _groups_table(answer: SetAnswer, groups: Sequence[Subgroup]) -> Table:
    rows = []
    for one in groups:
        cells = [group_cell(one.rates[rate]) for rate in RATES]
        # Why a group is too small stands on the page.
        short = [Cell("too small") if isinstance(cell.content, str) else cell for cell in cells]
        rows.append(Row(one.name, [Cell(f"{one.patients:,}"), *short]))
    columns = [Column(head) for head in ("Patients", "Sensitivity", "Specificity", "AUROC")]
    note = "worse: below the other images, by intervals that hold for all groups at once"
    return Table.of(f"{answer.label}: subgroups", columns, rows, row_header="Group", note=note)


def _plain(text: Markup) -> str:
    return " ".join(text.striptags().split())


def plan_table(plan: StudyPlan) -> Table:
    columns = [Column("patients"), Column("images"), Column("referable\nimages"), Column("design\neffect")]
    rows = []
    for name, one in sorted(plan.requirements.items(), key=lambda item: -item[1].patients):
        patients = Cell.number(one.patients, form=tables.COUNT, emphasis="best" if name == plan.decisive else "")
        effect = Cell.number(one.design_effect, form=EFFECT)
        rows.append(Row(one.question, [patients, Cell.count(one.images), Cell.count(one.positives), effect]))
    caption = f"{plan.patients:,} patients answer every question (prevalence {plan.assumptions.prevalence:.3g})"
    asked = [one for name, one in plan.requirements.items() if name.endswith("_above")]
    if asked:  # what was asked comes first
        most = plan.requirements.get("both_above") or max(asked, key=lambda one: one.patients)
        caption = f"{most.patients:,} patients are needed for a {most.question}.\n{caption}"
    sources = "; ".join(dict.fromkeys(one.source for one in plan.requirements.values()))
    return Table.of(caption, columns, rows, row_header="To know", note=f"Formulas: {sources}.")


CONTENTS = (
    ("verdict", "Answer"), ("explore", "Other thresholds"), ("missed", "Missed disease"), ("rates", "Sensitivity and specificity"),
    ("groups", "Subgroups"), ("work", "Cost"), ("risk", "Calibration and net benefit"), ("grades", "Grades"), ("data", "Data"),
    ("checklist", "Checklist"),
)  # fmt: skip


@style.drawing()
def render(report: ScreeningReport, grid: PolicyGrid | None = None) -> str:
    answers = answer_sets(report)
    many = len(answers) > 1
    graded = grade_section(
        {one.name: {"model": (MODEL, [one.one.grades] if one.one.grades else [])} for one in answers}
    )
    absent = ([] if many else ["work"]) + ([] if grid is not None else ["explore"]) + ([] if graded else ["grades"])
    context = {
        "title": TITLE,
        "contents": [entry for entry in CONTENTS if entry[0] not in absent],
        "explorer": None if grid is None else explorer({"model": grid}, report.reader),
        "report": report,
        "grades": graded,
        "sets": [_set_page(answer, report) for answer in answers],
        "many": many,
        "file": PurePath(report.source).name if report.source else "predictions",
        "counts": counts_table(answers),
        "checklist": checklist_table(checklist(report)),
        "decision_legend": [
            LegendEntry("model alone", MODEL), LegendEntry("model with the reader", READER),
        ],
    }  # fmt: skip
    return pages.render("clinic.html.j2", context, package="retinabench.reports")


def write_clinic(report: ScreeningReport, out: Path, grid: PolicyGrid | None = None) -> Path:
    page = render(report, grid)
    write_json(out / "clinic.json", clinic_json(report))
    if grid is not None:
        write_json(out / "policies.json", grid.to_dict())
    write_bytes(out / "index.html", page.encode())
    return out / "index.html"


def clinic_json(report: ScreeningReport) -> dict[str, object]:
    return {
        **report.to_dict(),
        "answers": {answer.name: answer.kind for answer in answer_sets(report)},
        "checklist": checklist(report),
    }


def _set_page(answer: SetAnswer, report: ScreeningReport) -> dict[str, object]:
    one, images = answer.one, answer.one.missed.images
    first, further = images[:FIRST_MISSED], images[FIRST_MISSED:MOST_MISSED]

    def panel(name: str, figure: Figure, title: str) -> Panel:
        heading = f"{title}, {answer.label.lower()}"
        return Panel.of(figure, f"{name}-{answer.name}", heading, f"{heading} images; the numbers stand in the tables.")

    return {
        "answer": answer,
        "missed_figure": panel("missed", missed_panel(one), "Referable images missed"),
        "missed_table": missed_table(answer, first) if first else None,
        "further_missed": missed_table(answer, further) if further else None,
        "listed": len(first) + len(further),
        "rates": rates_table(answer, report),
        "ungradable": ungradable_table(answer),
        "groups": [subgroup_table(answer, one.subgroups, name) for name in one.subgroups.columns]
        if one.subgroups
        else [],
        "between": between_table(answer),
        "readers": readers_table(answer),
        "predictive": predictive_table(answer),
        "decision_figure": panel("decision", decision_panel(one), "Net benefit"),
        "calibration_figure": panel("calibration", calibration_panel(one), "Calibration"),
    }
