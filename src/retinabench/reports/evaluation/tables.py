"""The tables of a report, on the page and on the terminal."""

from __future__ import annotations

from pathlib import PurePath

import numpy as np

from retinabench.metrics.clinical.by_patient import by_patient
from retinabench.metrics.image_sets import PER_IMAGE, PER_PATIENT, SET_LABELS
from retinabench.metrics.registry import SCORES
from retinabench.metrics.weighted_images import Cases
from retinabench.reports.evaluation.evaluation import Evaluation, quantities
from retinabench.reports.toolkit.number_format import PERCENT, THREE_DIGITS, NumberFormat, Quantity, percent
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table

# Scores of the main table.
MAIN = (
    "auroc", "accuracy", "sensitivity", "specificity", "brier_skill", "nll", "ece_positive_class",
    "referral_accuracy_area", "failure_auroc",
)  # fmt: skip
RETAINED = ("accuracy", "gain", "closed", "sensitivity", "specificity", "prevalence", "missed")
"""Scores of the table of the retained images, at the share referred."""
FORMATS = {"gain": NumberFormat(3, signed=True), "closed": PERCENT, "prevalence": PERCENT, "missed": PERCENT}
FILE_COLUMNS = {
    "method": "Method as run", "model": "Network", "task": "Task", "seed": "Seed", "samples": "Samples",
    "members": "Members", "config_hash": "Configuration", "version": "Package",
}  # fmt: skip


def score_tables(e: Evaluation) -> list[Table]:
    """Return methods by scores, one table per set, with the baseline, and random and oracle referral of the leading method.

    A score that no method has on any set (the published rules know fewer) has no column.
    """
    shown = [score for score in MAIN if any(e.get(i, name, score).defined for i, name in e.cases)]
    columns = [Column(SCORES[score].heading) for score in shown]
    tables = []
    for name in e.sets:
        best = {score: e.best(name, score) for score in shown}
        rows = [
            Row(one.name, [Cell(e.get(i, name, s), emphasis="best" if best[s] == i else "") for s in shown])
            for i, one in enumerate(e.methods)
            if (i, name) in e.cases
        ]
        for kind, values in e.controls(name).items():
            control = [Cell.number(values[score]) if score in values else Cell() for score in shown]
            rows.append(Row(kind, control, control=True))
        tables.append(Table.of(f"{SET_LABELS[name]}, {PER_IMAGE}", columns, rows, row_header="Method"))
    return tables


def retained_tables(e: Evaluation) -> list[Table]:
    """Return the scores of the retained images, one table per set: accuracy alone does not show which images are referred.

    The last row is the leading method before referral.
    """
    columns = [Column(e.spec(e.at(score)).label) for score in RETAINED]
    forms = {score: FORMATS.get(score, THREE_DIGITS) for score in RETAINED}
    tables = []
    for name in e.sets:
        rows = [
            Row(one.name, [Cell(e.get(i, name, e.at(score)), forms[score]) for score in RETAINED])
            for i, one in enumerate(e.methods)
            if (i, name) in e.cases
        ]
        case = e.first(e.leader, name)
        if case is not None:
            before = {score: e.lead_value(name, score) for score in ("accuracy", "sensitivity", "specificity")}
            before["prevalence"] = Quantity(float(case.label.mean()))
            unreferred = [Cell(before[s], forms[s]) if s in before else Cell() for s in RETAINED]
            rows.append(Row(f"“{e.leading}”, nothing referred", unreferred, control=True))
        referred = percent(e.settings.referred)
        caption = f"{SET_LABELS[name]}: the images retained when {referred} are referred, {PER_IMAGE}"
        tables.append(Table.of(caption, columns, rows, row_header="Method"))
    return tables


def patients_tables(e: Evaluation) -> list[Table]:
    shown = ("auroc", "accuracy", "sensitivity", "specificity")
    specs = [SCORES[score] for score in shown]
    tables = []
    for name in e.domains:
        rows = []
        for i, method in enumerate(e.methods):
            parts = [one.select(domain=name, split="test") for one in method.predictions]
            known = [one for one in parts if one is not None and one.patient_id is not None]
            threshold = e.cases[i, name][0].cases.threshold
            people = [by_patient(one, e.settings.uncertainty, threshold) for one in known]
            if not people or len(people[0]) == len(known[0]):
                continue
            wholes = [Cases(one.label, one.prob, threshold=threshold).weighted() for one in people]
            values = np.array([[spec(w) for spec in specs] for w in wholes])
            draws = np.zeros((len(wholes), 2, len(specs)))  # not looked at: these intervals have closed forms …
            draws[..., 0] = 0.0 if len(wholes) == 1 else np.nan  # … but that of an AUROC over several seeds
            found = quantities([spec.interval for spec in specs], wholes, values, draws)
            rows.append(Row(method.name, [Cell(one) for one in found]))
        if rows:
            caption = f"{SET_LABELS[name]}, {PER_PATIENT} (any eye): diseased, or called referable, where one image is"
            tables.append(Table.of(caption, [Column(spec.heading) for spec in specs], rows, row_header="Method"))
    return tables


def sets_table(evaluation: Evaluation) -> Table:
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
