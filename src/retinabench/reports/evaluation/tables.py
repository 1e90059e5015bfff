"""The tables of the evaluation page."""

from __future__ import annotations

from pathlib import PurePath

from retinabench.metrics.clinical.operating_points import GOALS
from retinabench.metrics.registry import SCORES
from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.evaluation.evaluation import Evaluation
from retinabench.reports.toolkit.number_format import PERCENT, THREE_DIGITS, NumberFormat, percent
from retinabench.reports.toolkit.tables import UNDEFINED, Cell, Column, Row, Table

MAIN = (
    "auroc", "accuracy", "nll", "ece_top_label", "accuracy_at_50", "referral_accuracy_area", "failure_auroc",
)  # fmt: skip
"""Scores of the main table."""
RETAINED = (
    "accuracy_at_50", "gain_at_50", "closed_at_50", "sensitivity_at_50", "specificity_at_50", "prevalence_at_50",
    "missed_at_50",
)  # fmt: skip
"""Scores of the table of the retained half."""
FORMATS = {
    "gain_at_50": NumberFormat(3, signed=True), "closed_at_50": PERCENT, "prevalence_at_50": PERCENT, "missed_at_50": PERCENT,
}  # fmt: skip
NHS_SCORE = "sensitivity_at_specificity_80"
FILE_COLUMNS = {
    "method": "Method as run", "model": "Network", "task": "Task", "seed": "Seed", "samples": "Samples",
    "members": "Members", "config_hash": "Configuration", "version": "Package",
}  # fmt: skip


def score_tables(evaluation: Evaluation) -> list[Table]:
    """Return methods by scores, one table per set, with random and oracle referral of the leading method.

    A score that no method has on any set (the published rules know fewer) has no column.
    """
    shown = [
        score for score in MAIN if any(evaluation.get(i, name, score).defined for i, name in evaluation.cases)
    ]
    columns = [Column(SCORES[score].heading) for score in shown]
    tables = []
    for name in evaluation.sets:
        best = {score: evaluation.best(name, score) for score in shown}
        rows = [
            Row(
                method.name,
                [
                    Cell(evaluation.get(i, name, score), emphasis="best" if best[score] == i else "")
                    for score in shown
                ],
            )
            for i, method in enumerate(evaluation.methods)
            if (i, name) in evaluation.cases
        ]
        for kind, values in evaluation.controls(name).items():
            cells = [Cell.number(values[score]) if score in values else Cell() for score in shown]
            rows.append(Row(kind, cells, control=True))
        tables.append(Table.of(SET_LABELS[name], columns, rows, row_header="Method"))
    return tables


def retained_tables(evaluation: Evaluation) -> list[Table]:
    """Return the scores of the retained half, one table per set: accuracy alone does not show which images are referred."""
    columns = [Column(SCORES[score].label) for score in RETAINED]
    tables = []
    for name in evaluation.sets:
        rows = [
            Row(
                method.name,
                [
                    Cell(evaluation.get(i, name, score), FORMATS.get(score, THREE_DIGITS))
                    for score in RETAINED
                ],
            )
            for i, method in enumerate(evaluation.methods)
            if (i, name) in evaluation.cases
        ]
        caption = f"{SET_LABELS[name]}: the retained half"
        tables.append(Table.of(caption, columns, rows, row_header="Method"))
    return tables


def nhs_table(evaluation: Evaluation) -> Table:
    """Return each method's sensitivity at a specificity of at least 0.80, beside the goal of 0.85."""
    columns = [Column(SET_LABELS[name]) for name in evaluation.domains]
    rows = [
        Row(method.name, [_nhs_cell(evaluation, i, name) for name in evaluation.domains])
        for i, method in enumerate(evaluation.methods)
    ]
    caption = "The NHS standard: sensitivity 0.85 at specificity 0.80"
    return Table.of(caption, columns, rows, row_header=SCORES[NHS_SCORE].label)


def _nhs_cell(evaluation: Evaluation, i: int, name: str) -> Cell:
    found, goal = evaluation.get(i, name, NHS_SCORE), GOALS["nhs"].sensitivity
    if not found.defined:
        return UNDEFINED
    if found.low >= goal:
        return Cell(found, emphasis="good", note="met, whole interval")
    if found.value >= goal:
        return Cell(found, note="met by the estimate")
    return Cell(found, emphasis="bad", note="not met")


def sets_table(evaluation: Evaluation) -> Table:
    """Return the number of images and patients of every set."""
    columns = [Column("Images"), Column("Patients"), Column("Referable")]
    rows = []
    for name in evaluation.sets:
        one = next((files[0][name] for files in evaluation.files if name in files[0].sets), None)
        if one is not None:
            patients = f"{one.patients:,}" if one.patients else "not given"
            share = percent(one.positives / one.images)
            texts = [f"{one.images:,}", patients, f"{one.positives:,} ({share})"]
            rows.append(Row(SET_LABELS[name], [Cell(text) for text in texts]))
    return Table.of("Test images", columns, rows, row_header="Set")


def files_table(evaluation: Evaluation) -> Table:
    """Return the origin of every file; columns that no file fills are left out."""
    names, found = [], []
    for method in evaluation.methods:
        for predictions in method.predictions:
            meta = {"samples": predictions.samples, **predictions.metadata}
            meta["version"] = meta.get("package_version", meta.get("version", ""))
            source = PurePath(predictions.source).name if predictions.source else ""
            names.append(method.name)
            found.append([*(str(meta.get(key, "")) for key in FILE_COLUMNS), source])
    labels = (*FILE_COLUMNS.values(), "File")
    filled = [k for k in range(len(labels)) if any(texts[k] for texts in found)]
    rows = [Row(name, [Cell(texts[k]) for k in filled]) for name, texts in zip(names, found, strict=True)]
    return Table.of("Files", [Column(labels[k], text=True) for k in filled], rows, row_header="Method")
