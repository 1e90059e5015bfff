"""Certified targets on unlabelled new patients, estimated under covariate shift and under label shift.

An estimate is as good as its assumption (`weighted`), which the data cannot confirm; none is a certificate. Where both
assumptions give similar values the estimate hardly depends on which one holds; where they differ, labels are needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from retinabench.core.results import JsonObject, json_content
from retinabench.metrics.guarantees.goals import Goal, ReferralCases
from retinabench.metrics.guarantees.shift.label_shift import LabelShift, label_shift
from retinabench.metrics.guarantees.shift.weighted import (
    EstimatedRisk,
    Floats,
    Images,
    Reweighting,
    covariate_weights,
)
from retinabench.metrics.proportions import Interval, finite_or_none

CANDIDATES = 40
LEVEL = 0.95


@dataclass(frozen=True)
class Assumed:
    """What follows from one assumption."""

    name: str
    targets: Mapping[str, EstimatedRisk]
    threshold: float | None

    def to_dict(self) -> JsonObject:
        """Return the estimates for JSON."""
        return {
            "targets": json_content(self.targets),
            "threshold": self.threshold,
        }


@dataclass(frozen=True)
class ShiftEstimates:
    """The estimates under both assumptions, and the prevalence under label shift."""

    assumed: tuple[Assumed, ...]
    prevalence: LabelShift

    def to_dict(self) -> JsonObject:
        """Return the estimates for JSON."""
        shift = self.prevalence
        return {
            **{one.name.replace(" ", "_"): one.to_dict() for one in self.assumed},
            "prevalence": {
                **shift.prevalence.to_dict(),
                "maximum_likelihood": shift.likelihood,
                "validation": shift.validation_prevalence,
                "positive_weight": finite_or_none(shift.positive_weight),
                "why": shift.why,
            },
        }


def estimates_under_shift(
    validation: ReferralCases, prob: Floats, new: Images, goals: Sequence[Goal], threshold: float
) -> ShiftEstimates:
    """Estimate every target on unlabelled new patients.

    Shapes: `prob` (N,).
    """
    old = Images(prob, validation.uncertainty, validation.patient, validation.weight)
    shift = label_shift(old, validation.label, new)
    covariate = _assumed("covariate shift", covariate_weights(old, new), validation, goals, threshold)
    if shift.weights is not None:
        return ShiftEstimates(
            (covariate, _assumed("label shift", shift.weights, validation, goals, threshold)), shift
        )
    refused = {str(goal): EstimatedRisk(Interval(np.nan), 0.0, shift.why) for goal in goals}
    return ShiftEstimates((covariate, Assumed("label shift", refused, None)), shift)


def _assumed(
    name: str, weights: Reweighting, cases: ReferralCases, goals: Sequence[Goal], threshold: float
) -> Assumed:
    targets, thresholds = {}, []
    candidates = np.unique(np.quantile(cases.uncertainty, np.arange(1, CANDIDATES + 1) / CANDIDATES))
    for goal in goals:

        def sums(cut: float, goal: Goal = goal) -> tuple[Floats, Floats]:
            num, den = goal.spec.sums(cases, cut)
            return (num > 0).astype(float), (den > 0).astype(float)

        found = weights.risk(*sums(threshold))
        risk = found.risk
        if goal.spec.at_least:
            found = replace(found, risk=Interval(1 - risk.value, 1 - risk.high, 1 - risk.low))
        targets[str(goal)] = found
        if not goal.spec.of_referred:
            thresholds.append(weights.threshold(candidates.tolist(), sums, goal.max_risk, LEVEL))
    reached = [one for one in thresholds if one is not None]
    return Assumed(name, targets, min(reached) if thresholds and len(reached) == len(thresholds) else None)
