"""From the runs of each method to the cells of a column: mean, standard error, and which are best.

**The test.** Method a with runs 1 … n_a has the mean score m_a. The difference d = m_a - m_b varies over patients and over
runs, and both enter its variance:

    v = (B-1)/B sum_g (d_(g) - mean d_(g))^2  +  s_a^2 / n_a  +  s_b^2 / n_b

d_(g): the difference without block g of B blocks of patients, the same for all methods and runs (the delete-a-group
jackknife); s^2: the variance of the score over runs (ddof 1), for a method with one run unknown and left out. d / sqrt(v)
has a t distribution with Welch's and Satterthwaite's degrees of freedom; Holm's correction runs over all pairs of a column.
What one patient means to one run is in both parts, so that the test errs towards "no difference".

Sources: Kott, The delete-a-group jackknife, J. Official Stat. 17:521 (2001); Satterthwaite, Biometrics 2:110 (1946).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.metrics.inference.bootstrap import percentile_interval
from retinabench.metrics.inference.compare import holm
from retinabench.metrics.inference.over_seeds import aggregate
from retinabench.metrics.published import figures
from retinabench.metrics.registry import SCORES
from retinabench.reports.papers.collect import Group
from retinabench.reports.papers.layout import Cell
from retinabench.reports.papers.measure import Key

Floats = NDArray[np.float64]
LEVEL = 0.05


def column(groups: Sequence[Group], key: Key, rules: str) -> list[Cell]:
    """One cell per method for a number.

    corrected: mean and standard error over runs (ddof 1), or a run's value with its interval; in bold the best mean and
    what it does not beat, unless it beats nothing. published: mean and standard error with ddof 0, runs without a value
    dropped; in bold the best mean.
    """
    sign = SCORES[key[1]].sign
    if rules == "published":
        cells = [_published_cell(group, key) for group in groups]
        leading = _leading(cells, sign)
    else:
        cells = [_cell(group, key) for group in groups]
        leading = _unbeaten(groups, cells, key, sign)
    return [
        Cell(c.value, c.error, c.low, c.high, c.runs, bold, c.why)
        for c, bold in zip(cells, leading, strict=True)
    ]


def _cell(group: Group, key: Key) -> Cell:
    values = [run.get(key) for run in group.runs]
    why = next((w for run in group.runs if (w := run.why.get(key))), "the set is missing")
    found = aggregate(values)
    if not np.isfinite(found.mean):
        return Cell(np.nan, runs=len(values), why=why)
    if len(values) > 1:
        return Cell(found.mean, group.error(values), runs=len(values))
    draws = group.runs[0].drawn.get(key)
    low, high = (np.array(np.nan),) * 2 if draws is None else percentile_interval(draws)
    return Cell(found.mean, low=float(low), high=float(high))


def _published_cell(group: Group, key: Key) -> Cell:
    values = [None if np.isnan(value := run.get(key)) else value for run in group.runs]
    why = next((w for run in group.runs if (w := run.why.get(key))), "the set is missing")
    known = [value for value in values if value is not None]
    if not known:
        return Cell(np.nan, runs=len(values), why=why)
    mean, _, error = figures.aggregate(known)
    return Cell(mean, error if len(known) > 1 else np.nan, runs=len(known))


def _leading(cells: Sequence[Cell], sign: int) -> list[bool]:
    known = [sign * cell.value for cell in cells if np.isfinite(cell.value)]
    return [len(known) > 1 and np.isfinite(c.value) and sign * c.value == max(known) for c in cells]


def _unbeaten(groups: Sequence[Group], cells: Sequence[Cell], key: Key, sign: int) -> list[bool]:
    """Whether each method is the best, or not significantly worse; nobody where the best beats nobody."""
    known = [i for i, cell in enumerate(cells) if np.isfinite(cell.value)]
    if len(known) < 2:
        return [False] * len(cells)
    top = max(known, key=lambda i: sign * cells[i].value)
    pairs = list(combinations(known, 2))
    adjusted = holm([difference_p(groups[i], groups[j], key) for i, j in pairs])
    beaten = {
        i + j - top for (i, j), p in zip(pairs, adjusted, strict=True) if top in (i, j) and not p >= LEVEL
    }
    return [bool(beaten) and i in known and i not in beaten for i in range(len(cells))]


def difference_p(a: Group, b: Group, key: Key) -> float:
    """Two-sided p-value of "no difference" between the means of two methods; NaN where nothing tells."""
    one, two = ([run.get(key) for run in group.runs] for group in (a, b))
    difference = float(np.mean(one) - np.mean(two))
    nothing = np.empty(0)  # for a single patient, whom one cannot leave out
    left_out = [np.mean([run.left_out.get(key, nothing) for run in g.runs], axis=0) for g in (a, b)]
    gap = left_out[0] - left_out[1]
    parts: list[tuple[float, int]] = []  # (variance, its degrees of freedom)
    if len(gap) and not np.isfinite(gap).all():
        return float("nan")
    if len(gap) > 1:
        parts.append((float((len(gap) - 1) / len(gap) * np.sum((gap - gap.mean()) ** 2)), len(gap) - 1))
    for group, values in ((a, one), (b, two)):
        if len(values) > 1:
            parts.append((group.error(values) ** 2, group.independent - 1))
    variance = sum(v for v, _ in parts)
    if not parts or not np.isfinite(difference):
        return float("nan")
    if variance <= 0:
        return 1.0 if difference == 0 else 0.0
    freedom = variance**2 / sum(v**2 / df for v, df in parts if v > 0)
    return float(2 * stats.t.sf(abs(difference) / np.sqrt(variance), freedom))
