"""Tables of the five grades, which `score`, `report` and `clinic` show: scores, confusion, and sets of grades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from retinabench.metrics.grades import GRADE_SCORES, GradeScores
from retinabench.predictions.values import SEVERE
from retinabench.reports.toolkit.tables import PERCENT, TWO_DIGITS, Cell, Column, Row, Table, pooled

GRADE_NAMES = ("0, none", "1, mild", "2, moderate", "3, severe", "4, proliferative")
WEIGHTINGS = {"alike": "All grades alike", "severity": "Severe grades more", "grade": "Within each grade"}
Seeds = Sequence[GradeScores]


def scores_table(caption: str, found: Mapping[str, Seeds]) -> Table:
    rows = [
        Row(spec.heading, [Cell(pooled([one.scores[name] for one in seeds])) for seeds in found.values()])
        for name, spec in GRADE_SCORES.items()
    ]
    parts = [
        (spec.label, column, one.scores[name].why)
        for name, spec in GRADE_SCORES.items()
        for column, seeds in found.items()
        for one in seeds
    ]
    note = ". ".join(sorted({f"{label}, {column}: {why}" for label, column, why in parts if why}))
    return Table.of(caption, [Column(name) for name in found], rows, row_header="Score", note=note)


def confusion_table(label: str, one: GradeScores) -> Table:
    rows = []
    for true, (counts, shares) in enumerate(zip(one.confusion.tolist(), one.shares, strict=True)):
        cells = [
            replace(Cell.of(share, PERCENT), below=f"{count:,} images")
            for count, share in zip(counts, shares, strict=True)
        ]
        cells[true] = replace(cells[true], emphasis="good")
        if true >= SEVERE and counts[0]:
            cells[0] = replace(cells[0], emphasis="bad")
        rows.append(Row(GRADE_NAMES[true], cells))
    note = "In small print: the 95 % interval of the share of the row, and the number of images."
    columns = [Column(str(called), group="called") for called in range(len(GRADE_NAMES))]
    return Table.of(f"{label}: true and called grade", columns, rows, row_header="True grade", note=note)


def sets_table(label: str, one: GradeScores, *, subgroups: bool = True) -> Table | None:
    if not one.sets:
        return None
    first, rows = next(iter(one.sets.values())), []
    for found in zip(*(sets.groups for sets in one.sets.values()), strict=True):
        name = found[0].group
        if subgroups or name == "all" or name.startswith("grade: "):
            sizes = [f"{TWO_DIGITS(group.size.value)} grades" for group in found]
            cells = [replace(Cell.of(group.coverage), below=size) for group, size in zip(found, sizes, strict=True)]
            rows.append(Row(name, cells))
    caption = f"{label}: share of the sets of grades that hold the true one, {PERCENT(first.asked)} promised"
    note = (
        f"Per image of a random patient; below, the mean size of a set. Chosen on {first.patients:,} validation patients. For in-domain images the promise is of the "
        "row “all”, in the last column of each of the grades 0, 1 and 2 and of grades 3 and 4 together."
    )
    return Table.of(caption, [Column(WEIGHTINGS[name]) for name in one.sets], rows, row_header="Images", note=note)
