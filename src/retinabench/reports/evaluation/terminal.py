"""Tables for the terminal, within 80 columns: scores, and two models side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from rich.console import Group

from retinabench.metrics.comparison.compare import Comparison
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.registry import SCORES
from retinabench.metrics.results import Scores, SetScores
from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.toolkit.number_format import NumberFormat
from retinabench.reports.toolkit.renderers import to_terminal
from retinabench.reports.toolkit.tables import UNDEFINED, Block, Cell, Column, Row, Table

COLUMNS = ("auroc", "accuracy", "nll", "referral_accuracy_area")
SETS = ("in_domain", "shifted", "joint")
SIGNED = NumberFormat(3, signed=True)


Controls = Mapping[str, Mapping[str, float]]
"""Name of a control -> score -> value."""


def scores_table(
    names: Sequence[str], scores: Sequence[Scores], controls: Mapping[str, Controls] | None = None
) -> Group:
    """Return the scores of methods on every set.

    Args:
        names: The method of each file. Files of one name are seeds of one method: their mean is shown with its standard
            error, a single file with its 95 % interval.
        scores: The scores of each file.
        controls: Set -> controls, which follow the methods.

    Returns:
        A table for `rich.console.Console.print`.
    """
    groups: dict[str, list[Scores]] = {}
    for name, one in zip(names, scores, strict=True):
        groups.setdefault(name, []).append(one)
    # Long headers would take the width of the names.
    columns = [
        Column(SCORES[score].heading.replace(", ", ",\n").replace("Referral ", "Referral\n"))
        for score in COLUMNS
    ]
    blocks = []
    for key in (key for key in SETS if any(key in one.sets for one in scores)):
        rows = []
        for name, files in groups.items():
            found = [one[key] for one in files if key in one.sets]
            if found:
                rows.append(Row(name, [_score_cell(found, score) for score in COLUMNS]))
        for control, values in (controls or {}).get(key, {}).items():
            cells = [Cell.number(values[score]) if score in values else Cell() for score in COLUMNS]
            rows.append(Row(control, cells, control=True))
        blocks.append(Block(columns, rows, SET_LABELS[key]))
    note = "Below each value: its 95 % interval over patients, or ± the standard error over seeds."
    return to_terminal(Table("", blocks, note=note))


def _score_cell(sets: Sequence[SetScores], score: str) -> Cell:
    found = [one[score] for one in sets if score in one.scores]
    values = [one.value for one in found if math.isfinite(one.value)]
    if not values or len(values) < len(found):
        return UNDEFINED
    if len(values) > 1:
        error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
        return Cell.number(float(np.mean(values)), error=error)
    return _interval_cell(found[0])


def _interval_cell(one: Interval) -> Cell:
    return Cell.number(one.value, one.low, one.high)


def comparison_table(found: Comparison) -> Group:
    """Return every score of every set: a, b, and a - b with its interval."""
    columns = [Column(title) for title in ("a", "b", "a - b", "p (Holm)", "better")]
    blocks = []
    for key, one in found.sets.items():
        rows = []
        for name, score in one.scores.items():
            difference = Cell.number(score.difference, score.low, score.high, form=SIGNED)
            numbers = [Cell.number(score.a), Cell.number(score.b), difference, Cell.number(score.p_holm)]
            rows.append(Row(name, [*numbers, Cell(score.better or "")]))
        blocks.append(Block(columns, rows, SET_LABELS[key]))
    note = f"a = {found.a}\nb = {found.b}\nbetter: after Holm's correction over the scores of a set"
    return to_terminal(Table("", blocks, note=note))
