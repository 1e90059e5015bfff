r"""Summarise the runs of each method in the cells of a column, and mark the methods that none is significantly better than.

The difference d = m_a - m_b of the mean scores of two methods with n_a and n_b runs varies over patients and over runs.
Both enter its variance:

    v = (B-1)/B sum_g (d_(g) - mean d_(g))^2  +  s_a^2 / n_a  +  s_b^2 / n_b

d_(g) is the difference without block g of B blocks of patients, the same for all methods and runs (the delete-a-group
jackknife); s^2 is the variance of the score over runs (ddof 1), left out where a method has one run. d / sqrt(v) is
compared with a t distribution with the degrees of freedom of Welch and Satterthwaite; Holm's correction covers all pairs
of a column. The interaction of patients and runs enters both parts, so that the test is conservative.

References:
    Kott, The delete-a-group jackknife, J. Official Stat. 17:521 (2001).
    Satterthwaite, An approximate distribution of estimates of variance components, Biometrics 2:110 (1946).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from scipy import stats

from retinabench.metrics import published
from retinabench.metrics.intervals import Ends, holm
from retinabench.metrics.over_seeds import aggregate
from retinabench.metrics.registry import SCORES
from retinabench.reports.papers.measurements import Key, MethodRuns
from retinabench.reports.toolkit.number_format import NumberFormat, Quantity
from retinabench.reports.toolkit.tables import Cell

LEVEL = 0.05


def column_cells(
    methods: Sequence[MethodRuns], key: Key, rules: str, form: NumberFormat | None = None
) -> list[Cell]:
    """Return one cell per method for a number."""
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
    """Return the value of a cell that holds a number."""
    assert isinstance(cell.content, Quantity)
    return cell.content.value


def _corrected_cell(method: MethodRuns, key: Key, form: NumberFormat) -> Cell:
    values = [run.get(key) for run in method.runs]
    found = aggregate(values)
    if not np.isfinite(found.mean):
        return Cell.number(np.nan, form=form, why=_why(method, key), runs=len(values))
    if len(values) > 1:
        error = method.standard_error(values)
        return Cell.number(found.mean, error=error, form=form, runs=len(values))
    ends = method.runs[0].intervals.get(key, Ends())
    return Cell.number(found.mean, ends.low, ends.high, form=form)


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


def _not_worse_than_best(
    methods: Sequence[MethodRuns], cells: Sequence[Cell], key: Key, sign: int
) -> set[int]:
    """Return the best method and those that are not significantly worse; none where all are equal to the best."""
    known = [i for i, cell in enumerate(cells) if cell.defined]
    if len(known) < 2:
        return set()
    best = max(known, key=lambda i: sign * value_of(cells[i]))
    pairs = list(combinations(known, 2))
    adjusted = holm([difference_p(methods[i], methods[j], key) for i, j in pairs])
    worse = {
        i + j - best for (i, j), p in zip(pairs, adjusted, strict=True) if best in (i, j) and not p >= LEVEL
    }
    return set(known) - worse if worse else set()


def difference_p(a: MethodRuns, b: MethodRuns, key: Key) -> float:
    """Return the two-sided p-value of "no difference" between the mean scores of two methods, NaN where unknown."""
    of_a, of_b = ([run.get(key) for run in method.runs] for method in (a, b))
    difference = float(np.mean(of_a) - np.mean(of_b))
    none = np.empty(0)  # of a single patient there is no jackknife
    without = [np.mean([run.jackknife.get(key, none) for run in one.runs], axis=0) for one in (a, b)]
    gap = without[0] - without[1]
    parts: list[tuple[float, int]] = []  # (variance, degrees of freedom)
    if len(gap) and not np.isfinite(gap).all():
        return float("nan")
    if len(gap) > 1:
        parts.append((float((len(gap) - 1) / len(gap) * np.sum((gap - gap.mean()) ** 2)), len(gap) - 1))
    for method, values in ((a, of_a), (b, of_b)):
        if len(values) > 1:
            parts.append((method.standard_error(values) ** 2, method.independent - 1))
    variance = sum(v for v, _ in parts)
    if not parts or not np.isfinite(difference):
        return float("nan")
    if variance <= 0:
        return 1.0 if difference == 0 else 0.0
    freedom = variance**2 / sum(v**2 / df for v, df in parts if v > 0)
    return float(2 * stats.t.sf(abs(difference) / np.sqrt(variance), freedom))
