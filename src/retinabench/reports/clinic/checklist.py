"""Reporting guidelines: the items that a predictions file answers, and those that are left to the authors.

Items are named in our own few words, by the numbers of the published checklists: STARD 2015, on which STARD-AI (2025) builds;
TRIPOD+AI (2024); CLAIM (2020). Read the guidelines themselves before reporting; items that no file could answer (title,
abstract, funding and the like) are left out here.
"""

from __future__ import annotations

from dataclasses import dataclass

from retinabench.core.results import Document
from retinabench.metrics.clinical.screening_report import ScreeningReport
from retinabench.reports.toolkit.tables import Cell, Column, Row, Table

AUTHORS = "to be answered by the authors"
SOURCES = (
    "Items by the numbers of STARD 2015 (Bossuyt et al., BMJ 351:h5527; STARD-AI, Nat. Med. 2025, adds items on data, algorithm and "
    "fairness to it), TRIPOD+AI (Collins et al., BMJ 385:e078378, 2024) and CLAIM (Mongan et al., Radiol. Artif. Intell. "
    "2:e200029, 2020), in our own words."
)


@dataclass(frozen=True)
class Item(Document):
    """An item: its numbers in the guidelines ("" where a guideline has none), its topic, and the answer."""

    stard: str
    tripod: str
    claim: str
    topic: str
    answer: str

    @property
    def numbers(self) -> str:
        """The numbers of the item in the guidelines that have it."""
        known = {"STARD": self.stard, "TRIPOD+AI": self.tripod, "CLAIM": self.claim}
        return "; ".join(f"{name} {number}" for name, number in known.items() if number)


def checklist(report: ScreeningReport) -> list[Item]:
    """Return the items, answered where the file answers them."""
    one = next(iter(report.sets.values()))
    known = report.threshold
    cut = f"{known.comparison}; " + (
        f"{known.rule} on the {known.chosen_on} split"
        if known.rule
        else "given beforehand, as far as the file says"
    )
    table = one.images.table
    counts = f"{table.tp} true positive, {table.fp} false positive, {table.fn} false negative, {table.tn} true negative images"
    clusters = "intervals in closed form, clustered by patient"
    if one.patients is None:
        clusters = "closed form; the file has no patients, so that images are taken as independent"
    groups = one.subgroups.columns if one.subgroups else []
    subgroups = (
        f"by {', '.join(groups)}, with simultaneous intervals" if groups else "no further columns in the file"
    )
    severity = "no grades in the file"
    if one.missed.severe is not None:
        severity = f"{one.missed.severe_total} of {table.tp + table.fn} referable images have grade 3 or 4"
    gradable = "counted as referred and left out" if one.ungradable else "no ungradable images in the file"
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
    return [Item(*row) for row in rows]


def checklist_table(items: list[Item]) -> Table:
    """Return the checklist as a table."""
    columns = [Column("Answer", text=True), Column("Numbers of the item", text=True)]
    rows = [
        Row(item.topic, [Cell(item.answer), Cell(item.numbers)], control=item.answer == AUTHORS)
        for item in items
    ]
    return Table.of("Reporting checklist", columns, rows, row_header="Item", note=SOURCES)
