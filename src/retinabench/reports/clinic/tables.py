"""The tables of the clinic's page and of the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan

from retinabench.metrics.clinical.consequences import MissedImage
from retinabench.metrics.clinical.screening_report import ScreeningReport
from retinabench.metrics.clinical.set_screening import JudgedTable, SetScreening
from retinabench.metrics.clinical.subgroups import RATES, GroupRate, Subgroup
from retinabench.metrics.proportions import Interval
from retinabench.reports.clinic.answer import SetAnswer
from retinabench.reports.toolkit.number_format import PERCENT, TWO_DIGITS, NumberFormat, percent
from retinabench.reports.toolkit.tables import UNDEFINED, Cell, Column, Row, Table

SIGNED = NumberFormat(2, signed=True)
READINGS = {
    "retained_only": "Retained images only",
    "screen_positive": "Referred count as positive",
    "expert": "Expert who never errs reads the referred",
    "reader": "Reader reads the referred",
}


def number(one: Interval, form: NumberFormat = TWO_DIGITS) -> Cell:
    """Return a cell of a number with its interval."""
    return Cell.number(one.value, one.low, one.high, form=form)


def rates_table(answer: SetAnswer, report: ScreeningReport) -> Table:
    """Return sensitivity and specificity of the model alone and under the four readings, per image and per patient."""
    one = answer.one
    columns = [Column("Sensitivity"), Column("Specificity"), Column("NHS goal", text=True)]
    rows = [Row("Model alone, per image", [*_rates(one.images), _goal(one.images, report)])]
    rows += _readings("per image", one.readings, report, one.pathway)
    if one.patients is not None and one.patient_readings is not None:
        cells = [*_rates(one.patients), _goal(one.patients, report)]
        rows.append(Row("Model alone, per patient (any eye)", cells, rule=True))
        rows += _readings("per patient", one.patient_readings, report, None)
    note = (
        f"The reader has sensitivity {report.reader[0]:g} and specificity {report.reader[1]:g} (stated). NHS goal: sensitivity "
        "0.85 at specificity 0.80; “met” means that both lower 97.5 % bounds reach it."
    )
    caption = f"{answer.label}: sensitivity and specificity"
    return Table.of(caption, columns, rows, row_header="Reading", note=note)


def _rates(judged: JudgedTable) -> list[Cell]:
    return [number(judged.sensitivity), number(judged.specificity)]


def _readings(
    unit: str,
    readings: Mapping[str, Mapping[str, Interval]],
    report: ScreeningReport,
    pathway: JudgedTable | None,
) -> list[Row]:
    rows = []
    for name, rates in readings.items():
        goal = _goal(pathway, report) if name == "screen_positive" and pathway is not None else Cell()
        cells = [number(rates["sensitivity"]), number(rates["specificity"]), goal]
        rows.append(Row(f"{READINGS[name]}, {unit}", cells))
    return rows


def _goal(judged: JudgedTable, report: ScreeningReport) -> Cell:
    verdict = next(one for one in judged.verdicts if one.goal == "nhs")
    if isnan(verdict.sensitivity[0]) or isnan(verdict.specificity[0]):
        return Cell("not known")
    if report.threshold.same_images:
        return Cell("not judged: threshold chosen here")
    if verdict.bound_met:
        return Cell("met, with bounds", emphasis="good")
    return Cell("estimates only") if verdict.estimate_met else Cell("not met", emphasis="bad")


def missed_table(answer: SetAnswer, images: Sequence[MissedImage]) -> Table:
    """Return missed images by id."""
    graded = any(one.grade is not None for one in images)
    known = any(one.patient_id is not None for one in images)
    columns = [Column("Patient", text=True)] if known else []
    columns += [Column("Grade")] if graded else []
    columns += [Column("P(referable)"), Column("Uncertainty")]
    rows = []
    for one in images:
        cells = [Cell(one.patient_id or "")] if known else []
        if graded:
            severe = one.grade is not None and one.grade >= 3
            cells.append(Cell("" if one.grade is None else str(one.grade), emphasis="bad" if severe else ""))
        cells += [Cell.number(one.prob), Cell.number(one.uncertainty)]
        rows.append(Row(one.image_id, cells))
    return Table.of(f"{answer.label}: missed images", columns, rows, row_header="Image")


def predictive_table(answer: SetAnswer) -> Table:
    """Return PPV and NPV at the stated prevalences."""
    heads = {
        "ppv": "PPV, model alone", "npv": "NPV, model alone", "ppv_with_reader": "PPV, with reader",
        "npv_with_reader": "NPV, with reader",
    }  # fmt: skip
    rows = [
        Row(f"{100 * float(prevalence):g} %", [number(values[name]) for name in heads])
        for prevalence, values in answer.one.predictive_values.items()
    ]
    caption = f"{answer.label}: predictive values at stated prevalences, per image"
    return Table.of(caption, [Column(head) for head in heads.values()], rows, row_header="Prevalence")


def subgroup_table(answer: SetAnswer, column: str) -> Table:
    """Return the groups of one column."""
    groups = answer.one.subgroups
    assert groups is not None
    heads = (
        "Sensitivity",
        "Specificity",
        "AUROC",
        "Referred",
        "Observed − predicted",
        "Patients",
        "Referable images",
    )
    rows = [Row(one.value, _group_cells(one)) for one in groups.of(column)]
    note = f"Cut {groups.bins[column]}." if column in groups.bins else ""
    caption = f"{answer.label}: {column}"
    return Table.of(caption, [Column(head) for head in heads], rows, row_header=column, note=note)


def _group_cells(one: Subgroup) -> list[Cell]:
    rates = [group_cell(one.rates[name]) for name in RATES]
    gap = one.calibration
    residual = Cell.number(gap.value, gap.low, gap.high, form=SIGNED)
    return [
        *rates,
        number(one.referral, PERCENT),
        residual,
        Cell(f"{one.patients:,}"),
        Cell(f"{one.positives:,}"),
    ]


def group_cell(rate: GroupRate) -> Cell:
    """Return a rate of a group, marked where it is shown to be below that of the other images."""
    alone = rate.alone
    if rate.too_small:
        count, few, _ = rate.too_small.partition(" with a ")
        return Cell("too small to say", below=count if few else TWO_DIGITS.interval(alone.low, alone.high))
    worse = rate.gap.high < 0
    return Cell.number(
        alone.value, alone.low, alone.high, form=TWO_DIGITS, emphasis="bad" if worse else "",
        note="worse" if worse else "",
    )  # fmt: skip


def operating_table(answer: SetAnswer) -> Table:
    """Return what the goals would ask of a threshold, chosen on these images."""
    rows = []
    for goal, name in (("nhs", "NHS"), ("fda_pivotal", "FDA pivotal trial")):
        for kind, points in answer.one.operating_points[goal].items():
            label = f"{name}: {kind.replace('_', ' ')}"
            values = (points.threshold, points.sensitivity, points.specificity)
            cells = [Cell.number(value) if value < 2 else UNDEFINED for value in values]
            rows.append(Row(label, cells))
    columns = [Column("Threshold"), Column("Sensitivity"), Column("Specificity")]
    note = "Chosen on these same images, and therefore optimistic: choose on validation images and freeze."
    return Table.of(f"{answer.label}: thresholds of the goals", columns, rows, row_header="Goal", note=note)


def ungradable_table(answer: SetAnswer) -> Table | None:
    """Return the rates with ungradable images left out and counted as referred; None where all can be graded."""
    found = answer.one.ungradable
    if found is None:
        return None
    columns = [Column("Sensitivity"), Column("Specificity")]
    rows = [
        Row("Ungradable images left out", [number(one) for one in found.excluded]),
        Row("Ungradable images count as referred", [number(one) for one in found.as_referred]),
    ]
    note = (
        f"Ungradable: {PERCENT.fitted(0.05)(found.among_referable.value)} of the referable images, "
        f"{PERCENT.fitted(0.05)(found.among_healthy.value)} of the others."
    )
    return Table.of(f"{answer.label}: ungradable images", columns, rows, row_header="Counting", note=note)


def counts_table(sets: Sequence[SetAnswer]) -> Table:
    """Return the number of images, patients and cases of every set."""
    columns = [
        Column(head) for head in ("Images", "Patients", "Referable images", "Severe images", "Ungradable")
    ]
    rows = [Row(answer.label, [Cell(text) for text in _counts(answer)]) for answer in sets]
    return Table.of("Test images", columns, rows, row_header="Set")


def _counts(answer: SetAnswer) -> list[str]:
    one: SetScreening = answer.one
    table = one.images.table
    images = table.tp + table.fp + table.fn + table.tn
    patients = "not given"
    if one.patients is not None:
        people = one.patients.table
        patients = f"{people.tp + people.fp + people.fn + people.tn:,}"
    return [
        f"{images:,}", patients, f"{answer.positives:,} ({percent(answer.positives / images)})",
        "no grades" if answer.severe is None else f"{answer.severe:,}",
        f"{one.ungradable.images:,}" if one.ungradable else "0",
    ]  # fmt: skip
