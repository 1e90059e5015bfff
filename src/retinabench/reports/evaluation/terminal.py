"""What `score` and `compare` print within 80 columns, and the scores of files as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.console import Group
from rich.text import Text

from retinabench.core.results import JsonObject
from retinabench.metrics.comparison import Comparison
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.registry import SCORES
from retinabench.metrics.score_results import Scores, SetScores
from retinabench.reports.evaluation.worth import pooled, sentences, worth_of_scores
from retinabench.reports.toolkit.number_format import NumberFormat, Quantity, p_value
from retinabench.reports.toolkit.tables import (
    UNDEFINED,
    Block,
    Cell,
    Column,
    Row,
    Table,
    to_terminal,
)

COLUMNS = ("auroc", "accuracy", "sensitivity", "referral_accuracy_area")
SETS = ("in_domain", "shifted", "joint")
SIGNED = NumberFormat(3, signed=True)
LIST_SCHEMA = "retinabench.scores-list/1"
Controls = Mapping[str, Mapping[str, float]]
"""Name of a control -> score -> value."""


def scores_table(
    names: Sequence[str], scores: Sequence[Scores], controls: Mapping[str, Controls] | None = None
) -> Group:
    """Return the scores of methods on every set."""
    groups: dict[str, list[Scores]] = {}
    for name, one in zip(names, scores, strict=True):
        groups.setdefault(name, []).append(one)
    # Long headers would take the width of the names.
    columns = [
        Column(SCORES[score].heading.replace(", ", ",\n").replace("Referral ", "Referral\n"))
        for score in COLUMNS
    ]
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
        blocks.append(Block(columns, rows, SET_LABELS[key]))
    seeds = len(groups) < len(scores)
    note = "Per image. Below each value: its 95 % interval over patients"
    note += " (of several seeds the mean of theirs); ± its standard error over seeds." if seeds else "."
    lines = [Text(line + "\n") for line in said]
    return Group(*lines, to_terminal(Table("", blocks, note=note)))


def _score_cell(sets: Sequence[SetScores], score: str) -> Cell:
    found = [one[score] for one in sets if score in one.scores]
    values = [one.value for one in found if math.isfinite(one.value)]
    if not values or len(values) < len(found):
        return UNDEFINED
    if len(values) > 1:
        return Cell(pooled(found))
    return Cell.number(found[0].value, found[0].low, found[0].high)


def comparison_table(found: Comparison) -> Group:
    """Return every score of every set: a, b, and a - b with its interval."""
    columns = [Column(title) for title in ("a", "b", "a - b", "p (Holm)", "better")]
    blocks = []
    for key, one in found.sets.items():
        rows = []
        for name, score in one.scores.items():
            difference = Cell.number(score.difference, score.low, score.high, form=SIGNED)
            form = replace(Quantity(score.difference, score.low, score.high).form(), signed=False)
            numbers = [Cell.number(one, form=form) for one in (score.a, score.b)]
            numbers += [difference, Cell(p_value(score.p_holm))]
            rows.append(Row(name, [*numbers, Cell(score.better or "")]))
        blocks.append(Block(columns, rows, SET_LABELS[key]))
    note = f"a = {found.a}\nb = {found.b}\nbetter: after Holm's correction over the scores of a set"
    return to_terminal(Table("", blocks, note=note))


def scores_json(found: Sequence[Scores], names: Sequence[str]) -> JsonObject:
    """Return what `retinabench score --json` writes of one file, or of several as a list."""
    files = [{**one.to_dict(), "entry": name} for one, name in zip(found, names, strict=True)]
    return files[0] if len(files) == 1 else {"schema": LIST_SCHEMA, "files": files}
