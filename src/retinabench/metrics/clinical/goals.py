"""Clinical goals, and whether a model meets them: by its estimates, or by their lower bounds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.metrics.clinical.operating_points import TwoByTwo, two_by_two
from retinabench.metrics.inference.proportions import binary, clopper_pearson, clustered_proportion


@dataclass(frozen=True)
class Goal:
    """A clinical goal: the least sensitivity and specificity asked for, and by whom."""

    sensitivity: float
    specificity: float
    source: str


GOALS = {
    "nhs": Goal(0.85, 0.80, "85 % / 80 % as recommended by the NHS (Leibig et al., Sci Rep 7:17816, 2017)"),
    "fda_pivotal": Goal(0.85, 0.825, "endpoints of the IDx-DR pivotal trial (npj Digit Med 1:39, 2018)"),
}


@dataclass(frozen=True)
class Verdict:
    """Whether a goal is met by the estimates, and whether it is met by the lower 97.5 % bounds; two different claims."""

    goal: str
    sensitivity: tuple[float, float]  # estimate, lower bound
    specificity: tuple[float, float]
    estimate_met: bool
    bound_met: bool


def judge_goals(
    label: ArrayLike,
    positive: ArrayLike,
    cluster: ArrayLike | Sequence[Hashable] | None = None,
    *,
    goals: dict[str, Goal] | None = None,
) -> tuple[TwoByTwo, list[Verdict]]:
    """The 2x2 table and, for each goal, two flags: estimates met, lower bounds met.

    label, positive: (N,). The bound is the lower end of the 95 % Clopper-Pearson interval, one-sided 97.5 %; with
    `cluster`, (N,) patients, at the effective sample size of clustered images (`clustered_proportion`). An absent class
    meets nothing. The approved IDx-DR met 85 % sensitivity by its estimate (173 of 198) and not by its bound (81.9 %).
    """
    table = two_by_two(label, positive)
    y, said = binary(label, "label"), binary(positive, "positive")
    ids: Any = np.arange(len(y)) if cluster is None else cluster
    sensitivity = _bound(table.counts("sensitivity"), said, y, ids, cluster is None)
    specificity = _bound(table.counts("specificity"), ~said, ~y, ids, cluster is None)
    verdicts = []
    for name, goal in (GOALS if goals is None else goals).items():
        met = [sensitivity[k] >= goal.sensitivity and specificity[k] >= goal.specificity for k in (0, 1)]
        verdicts.append(Verdict(name, sensitivity, specificity, met[0], met[1]))
    return table, verdicts


def _bound(
    counts: tuple[int, int],
    success: NDArray[np.bool_],
    of: NDArray[np.bool_],
    cluster: Any,
    independent: bool,
) -> tuple[float, float]:
    if independent:
        k, n = counts
        value, low = (k / n, float(clopper_pearson(k, n)[0])) if n else (float("nan"), float("nan"))
    else:
        value, low, _ = clustered_proportion(success, of, cluster)
    return value, low
