"""Operating points: the 2x2 table of a frozen threshold, the threshold that a goal asks for, and whether goals are met.

The rule everywhere is "positive iff prob >= threshold". Nothing is interpolated: every operating point
is reached by a threshold.

    >>> table = two_by_two([1, 1, 0, 0], [True, False, False, False])
    >>> table.sensitivity, table.specificity
    (0.5, 1.0)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.core.results import JsonObject
from retinabench.metrics.proportions import binary, clopper_pearson, clustered_proportion, wilson

Floats = NDArray[np.float64]
PROPORTIONS = ("sensitivity", "specificity", "ppv", "npv", "accuracy", "prevalence", "positive_rate")


@dataclass(frozen=True)
class TwoByTwo:
    """Counts of true and false positives and negatives, and the proportions of them; NaN where nothing is counted."""

    tp: int
    fp: int
    fn: int
    tn: int

    def counts(self, name: str) -> tuple[int, int]:
        """(successes, trials) of the proportion `name` (one of `PROPORTIONS`)."""
        total = self.tp + self.fp + self.fn + self.tn
        return {
            "sensitivity": (self.tp, self.tp + self.fn),
            "specificity": (self.tn, self.tn + self.fp),
            "ppv": (self.tp, self.tp + self.fp),
            "npv": (self.tn, self.tn + self.fn),
            "accuracy": (self.tp + self.tn, total),
            "prevalence": (self.tp + self.fn, total),
            "positive_rate": (self.tp + self.fp, total),
        }[name]

    @property
    def sensitivity(self) -> float:
        """TP / (TP + FN)."""
        return _ratio(*self.counts("sensitivity"))

    @property
    def specificity(self) -> float:
        """TN / (TN + FP)."""
        return _ratio(*self.counts("specificity"))

    @property
    def ppv(self) -> float:
        """TP / (TP + FP), at the prevalence of this very set."""
        return _ratio(*self.counts("ppv"))

    @property
    def npv(self) -> float:
        """TN / (TN + FN), at the prevalence of this very set."""
        return _ratio(*self.counts("npv"))

    @property
    def accuracy(self) -> float:
        """(TP + TN) / N."""
        return _ratio(*self.counts("accuracy"))

    def to_dict(self, level: float = 0.95) -> JsonObject:
        """The counts and every proportion with its Wilson and Clopper-Pearson interval (independent cases)."""
        out: JsonObject = {"tp": self.tp, "fp": self.fp, "fn": self.fn, "tn": self.tn}
        for name in PROPORTIONS:
            k, n = self.counts(name)
            if n == 0:
                out[name] = {"value": None, "why": "no such case", "successes": 0, "trials": 0}
                continue
            out[name] = {
                "value": k / n,
                "successes": k,
                "trials": n,
                "wilson": [float(end) for end in wilson(k, n, level)],
                "clopper_pearson": [float(end) for end in clopper_pearson(k, n, level)],
            }
        return out


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold (positive iff prob >= threshold; infinity: no image is positive) and what it yields."""

    threshold: float
    sensitivity: float
    specificity: float


def two_by_two(label: ArrayLike, positive: ArrayLike) -> TwoByTwo:
    """Count the 2x2 table of labels (N,) 0/1 and decisions (N,) bool."""
    y, said = binary(label, "label"), binary(positive, "positive")
    if len(y) != len(said):
        raise InputError(f"{len(said)} decisions for {len(y)} labels")
    tp, fp, fn = (int(np.sum(case)) for case in (y & said, ~y & said, y & ~said))
    return TwoByTwo(tp, fp, fn, len(y) - tp - fp - fn)


def operating_points(label: ArrayLike, prob: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """(thresholds, sensitivity, specificity), each (D + 1,): infinity, then the D distinct values from the top.

    Sensitivity rises, specificity falls along the arrays; NaN throughout for an absent class.
    """
    y, p = binary(label, "label"), np.asarray(prob, np.float64)
    if p.shape != y.shape or not np.isfinite(p).all():
        raise InputError(f"needed are {len(y)} finite numbers, one per label", column="prob")
    order = np.argsort(-p, kind="stable")
    ranked = p[order]
    last = np.flatnonzero(
        np.append(ranked[1:] != ranked[:-1], True)
    )  # the end of every block of equal values
    tp, said = np.cumsum(y[order])[last], last + 1
    positives, negatives = int(y.sum()), int((~y).sum())
    with np.errstate(invalid="ignore"):
        sensitivity = np.append(0, tp) / np.float64(positives)
        # Counted, not subtracted: 1 - 0.2 is not 0.8 to the last bit, and a goal of 0.8 would be missed.
        specificity = np.append(negatives, negatives - (said - tp)) / np.float64(negatives)
    return np.append(np.inf, ranked[last]), sensitivity, specificity


def sensitivity_at_specificity(label: ArrayLike, prob: ArrayLike, specificity: float) -> OperatingPoint:
    """Return the point of greatest sensitivity among those with at least this specificity.

    The thresholds are infinity and every distinct value; of several such points that of the highest threshold. It exists
    unless a class is absent, because calling no image positive has specificity 1.

    Shapes: `label` (N,), `prob` (N,).
    """
    threshold, sens, spec = operating_points(label, prob)
    return _best(threshold, sens, spec, spec >= specificity, sens)


def specificity_at_sensitivity(label: ArrayLike, prob: ArrayLike, sensitivity: float) -> OperatingPoint:
    """Return the point of greatest specificity among those with at least this sensitivity; see `sensitivity_at_specificity`.

    Shapes: `label` (N,), `prob` (N,).
    """
    threshold, sens, spec = operating_points(label, prob)
    return _best(threshold, sens, spec, sens >= sensitivity, spec)


def _best(
    threshold: Floats, sens: Floats, spec: Floats, allowed: NDArray[np.bool_], value: Floats
) -> OperatingPoint:
    if np.isnan(sens).any() or np.isnan(spec).any() or not allowed.any():
        return OperatingPoint(float("nan"), float("nan"), float("nan"))
    best = int(np.argmax(np.where(allowed, value, -1.0)))  # the first of equals: thresholds fall
    return OperatingPoint(float(threshold[best]), float(sens[best]), float(spec[best]))


@dataclass(frozen=True)
class ClinicalGoal:
    """A clinical goal: the least sensitivity and specificity asked for, and by whom."""

    sensitivity: float
    specificity: float
    source: str


GOALS = {
    "nhs": ClinicalGoal(
        0.85, 0.80, "85 % / 80 % as recommended by the NHS (Leibig et al., Sci Rep 7:17816, 2017)"
    ),
    "fda_pivotal": ClinicalGoal(
        0.85, 0.825, "endpoints of the IDx-DR pivotal trial (npj Digit Med 1:39, 2018)"
    ),
}


@dataclass(frozen=True)
class GoalVerdict:
    """Whether a goal is met by the estimates, and whether it is met by the lower 97.5 % bounds; two different claims.

    Neither is made where the threshold was chosen on the same images (`exploratory`): what it reaches there is optimistic.
    """

    goal: str
    sensitivity: tuple[float, float]  # estimate, lower bound
    specificity: tuple[float, float]
    estimate_met: bool
    bound_met: bool
    exploratory: bool = False


def judge_goals(
    label: ArrayLike,
    positive: ArrayLike,
    cluster: ArrayLike | Sequence[Hashable] | None = None,
    *,
    goals: dict[str, ClinicalGoal] | None = None,
    exploratory: bool = False,
) -> tuple[TwoByTwo, list[GoalVerdict]]:
    """Return the 2x2 table and, for each goal, whether the estimates meet it and whether the lower bounds do.

    The bound is the lower end of the exact 95 % interval of `clustered_proportion`, one-sided 97.5 %. An absent class meets
    nothing. The approved IDx-DR met 85 % sensitivity by its estimate (173 of 198) and not by its bound (81.9 %).

    Shapes: `label` (N,), `positive` (N,), `cluster` (N,).
    """
    table = two_by_two(label, positive)
    y, said = binary(label, "label"), binary(positive, "positive")
    ids: Any = np.arange(len(y)) if cluster is None else cluster
    sensitivity, specificity = (
        (found.value, found.low)
        for of, right in ((y, said), (~y, ~said))
        for found in [clustered_proportion(right, of, ids, exact=True)]
    )
    verdicts = []
    for name, goal in (GOALS if goals is None else goals).items():
        met = [sensitivity[k] >= goal.sensitivity and specificity[k] >= goal.specificity for k in (0, 1)]
        met = [one and not exploratory for one in met]
        verdicts.append(GoalVerdict(name, sensitivity, specificity, met[0], met[1], exploratory))
    return table, verdicts


def _ratio(top: float, bottom: float) -> float:
    if bottom == 0:
        return float("inf") if top > 0 else float("nan")
    return top / bottom
