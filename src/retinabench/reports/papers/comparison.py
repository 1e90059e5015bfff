"""The cells of a column: mean and error of each method, and marks on the methods that none is significantly better than.

Differences are tested by `metrics.comparison`, over patients and seeds; Holm's correction covers all pairs of a column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from retinabench.metrics import published
from retinabench.metrics.intervals import holm
from retinabench.metrics.registry import SCORES
from retinabench.reports.papers.measurements import Key, MethodRuns
from retinabench.reports.toolkit.number_format import NumberFormat, Quantity
from retinabench.reports.toolkit.tables import Cell

LEVEL = 0.05


def column_cells(methods: Sequence[MethodRuns], key: Key, rules: str, form: NumberFormat | None = None) -> list[Cell]:
    """Return one cell per method for a number.

    "corrected": mean and standard error over runs (ddof 1), or the value of a single run with its interval; the best mean is marked
    with all that are not significantly worse, unless none is. "published": mean and standard error with ddof 0, runs without a value
    dropped; the best mean is marked.
    """
    form = NumberFormat() if form is None else form
    sign = SCORES[key[1]].sign
    if rules == "published":
        cells = [_published_cell(method, key, form) for method in methods]
        best = _largest(cells, sign)
    else:
        cells = [_corrected_cell(method, key, form) for method in methods]
        best = _not_worse_than_best(methods, cells, key, sign)
    return [replace(cell, emphasis="best") if k in best else cell for k, cell in enumerate(cells)]


def value_of(cell: Cell) -> float:
    assert isinstance(cell.content, Quantity)
    return cell.content.value


def _corrected_cell(method: MethodRuns, key: Key, form: NumberFormat) -> Cell:
    found = method.ranked(key)
    if found is None or not np.isfinite(found.value):
        return Cell.number(np.nan, form=form, why=_why(method, key), runs=len(method.runs))
    if len(method.runs) > 1:
        return Cell.number(found.value, error=found.error, form=form, runs=len(method.runs))
    return Cell.number(found.value, found.low, found.high, form=form)


def _published_cell(method: MethodRuns, key: Key, form: NumberFormat) -> Cell:
    values = [value for run in method.runs if not np.isnan(value := run.get(key))]
    if not values:
        return Cell.number(np.nan, form=form, why=_why(method, key), runs=len(method.runs))
    mean, _, error = published.aggregate(values)
    return Cell.number(mean, error=error if len(values) > 1 else None, form=form, runs=len(values))


def _why(method: MethodRuns, key: Key) -> str:
    return next((why for run in method.runs if (why := run.why.get(key))), "the set is missing")


def _largest(cells: Sequence[Cell], sign: int) -> set[int]:
    known = {k: sign * value_of(cell) for k, cell in enumerate(cells) if cell.defined}
    return {k for k, value in known.items() if value == max(known.values())} if len(known) > 1 else set()


def _not_worse_than_best(methods: Sequence[MethodRuns], cells: Sequence[Cell], key: Key, sign: int) -> set[int]:
    known = [i for i, cell in enumerate(cells) if cell.defined]
    if len(known) < 2:
        return set()
    best = max(known, key=lambda i: sign * value_of(cells[i]))
    pairs = list(combinations(known, 2))
    ranking = methods[best].rankings[key]
    adjusted = holm([ranking.pair(methods[i].label, methods[j].label).p for i, j in pairs])
    worse = {i + j - best for (i, j), p in zip(pairs, adjusted, strict=True) if best in (i, j) and p < LEVEL}
    return set(known) - worse if worse else set()
