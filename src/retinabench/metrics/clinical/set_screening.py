"""The screening numbers of one set of images, at frozen thresholds of decision and referral."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import Document, JsonObject, json_content, vars_of
from retinabench.metrics.bootstrap import cluster_codes
from retinabench.metrics.calibration import CalibrationSummary, calibration_summary
from retinabench.metrics.clinical.consequences import Missed, Workload, missed_disease, workload
from retinabench.metrics.clinical.decision_curve import (
    THRESHOLDS,
    DecisionCurve,
    net_benefit,
    predictive_value_intervals,
)
from retinabench.metrics.clinical.decision_threshold import FrozenThreshold
from retinabench.metrics.clinical.operating_points import (
    GOALS,
    GoalVerdict,
    OperatingPoint,
    TwoByTwo,
    judge_goals,
    sensitivity_at_specificity,
    specificity_at_sensitivity,
)
from retinabench.metrics.clinical.referral_rule import ReferralRule
from retinabench.metrics.clinical.screening import patient_level, referral_view_intervals
from retinabench.metrics.clinical.subgroups import Subgroups, subgroups_of
from retinabench.metrics.clinical.ungradable import Ungradable, ungradable_images
from retinabench.metrics.intervals import auroc_error
from retinabench.metrics.proportions import Interval, clustered_proportion
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.metrics.weighted_images import is_positive
from retinabench.predictions.table import Predictions

Intervals = Mapping[str, Mapping[str, Interval]]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class JudgedTable:
    """A 2x2 table, its sensitivity and specificity with clustered intervals, and what it says of the clinical goals."""

    table: TwoByTwo
    sensitivity: Interval
    specificity: Interval
    verdicts: tuple[GoalVerdict, ...]

    def to_dict(self) -> JsonObject:
        """Return the table's part of the JSON; the Wilson and Clopper-Pearson intervals take cases as independent."""
        goals = {
            one.goal: {
                **vars_of(GOALS[one.goal]),
                "estimate": (one.sensitivity[0], one.specificity[0]),
                "bound": (one.sensitivity[1], one.specificity[1]),
                "estimate_met": one.estimate_met,
                "bound_met": one.bound_met,
                "exploratory": one.exploratory,
            }
            for one in self.verdicts
        }
        rates = {"sensitivity": self.sensitivity, "specificity": self.specificity}
        return {**self.table.to_dict(), **json_content({"clustered": rates, "goals": goals})}


@dataclass(frozen=True)
class Screened:
    """What the programme states: the frozen thresholds, the reader, and prices."""

    threshold: FrozenThreshold
    referral: ReferralRule
    prevalences: Sequence[float]
    reader: tuple[float, float]
    referral_cost: float
    images_per_hour: float
    subgroups: Sequence[str] | None


@dataclass(frozen=True)
class SetScreening(Document):
    """The screening numbers of one set; gradable images alone, but in `ungradable`."""

    _optional = ("patients", "patient_readings")

    images: JudgedTable
    patients: JudgedTable | None
    patient_readings: Intervals | None
    pathway: JudgedTable
    auroc: Interval
    referred: int
    missed: Missed
    workload: Workload
    readings: Intervals
    predictive_values: Intervals
    operating_points: Mapping[str, Mapping[str, OperatingPoint]]
    decision_curve: DecisionCurve
    with_reader: DecisionCurve
    calibration: CalibrationSummary
    subgroups: Subgroups | None
    ungradable: Ungradable | None

    def to_dict(self) -> JsonObject:
        """Return the set's part of the JSON."""
        content = super().to_dict()
        with_reader = content.pop("with_reader")
        content["decision_curve"] |= {"model_and_reader": with_reader["model"], "with_reader": with_reader}
        return content


def screen_set(part: Predictions, gradable: Bools, stated: Screened) -> SetScreening:
    """Compute the screening numbers of one set.

    Shapes: `gradable` (N,).
    """
    cut = stated.threshold
    every = part
    part = part.take(np.flatnonzero(gradable))
    y, p = part.label == 1, part.prob
    said = is_positive(p, cut.value)
    values, _ = referral_uncertainty(part, stated.referral.uncertainty, threshold=cut.value)
    sent = stated.referral.refers(values)
    codes, _ = cluster_codes(part.image_id if part.patient_id is None else part.patient_id)
    patients, patient_readings = _by_patient(part, cut, sent, stated.reader)
    readings = referral_view_intervals(y, said, sent, codes, reader=stated.reader)
    alone, after = _judged(y, said, codes, cut), readings["reader"]
    ranked = auroc_error(y, p, codes)
    return SetScreening(
        images=alone,
        patients=patients,
        pathway=_judged(y, said | sent, codes, cut),
        auroc=Interval(ranked.auroc, *ranked.interval()),
        referred=int(sent.sum()),
        missed=missed_disease(part, said, sent, values),
        workload=workload(part, sent, stated.images_per_hour),
        readings=readings,
        patient_readings=patient_readings,
        predictive_values={
            f"{q:g}": {
                **predictive_value_intervals(alone.sensitivity, alone.specificity, q),
                **{
                    f"{name}_with_reader": value
                    for name, value in predictive_value_intervals(
                        after["sensitivity"], after["specificity"], q
                    ).items()
                },
            }
            for q in stated.prevalences
        },
        operating_points=_operating_points(part),
        decision_curve=net_benefit(y, p, THRESHOLDS, cluster=codes),
        with_reader=net_benefit(
            y, p, THRESHOLDS, referred=sent, reader=stated.reader, referral_cost=stated.referral_cost, cluster=codes
        ),
        calibration=calibration_summary(y, p, codes),
        subgroups=subgroups_of(part, said, sent, stated.subgroups) if part.subgroups or stated.subgroups else None,
        ungradable=None if gradable.all() else _ungradable(every, gradable, cut),
    )  # fmt: skip


def _operating_points(part: Predictions) -> dict[str, dict[str, OperatingPoint]]:
    y, p = part.label, part.prob
    return {
        name: {
            "sensitivity_at_specificity": sensitivity_at_specificity(y, p, goal.specificity),
            "specificity_at_sensitivity": specificity_at_sensitivity(y, p, goal.sensitivity),
        }
        for name, goal in GOALS.items()
    }


def _judged(y: Bools, said: Bools, codes: NDArray[np.intp], cut: FrozenThreshold) -> JudgedTable:
    table, verdicts = judge_goals(y, said, codes, exploratory=cut.same_images)
    sensitivity, specificity = (
        clustered_proportion(right, of, codes) for right, of in ((said, y), (~said, ~y))
    )
    return JudgedTable(table, sensitivity, specificity, tuple(verdicts))


def _by_patient(
    part: Predictions, cut: FrozenThreshold, sent: Bools, reader: tuple[float, float]
) -> tuple[JudgedTable | None, Intervals | None]:
    """2x2 table of the model alone and the readings after referral, per patient (any eye)."""
    if part.patient_id is None:
        return None, None
    at = float(np.nextafter(0.5, 1)) if cut.is_default else cut.value
    people = patient_level(part.label, part.prob, part.patient_id, threshold=at)
    after = patient_level(part.label, part.prob, part.patient_id, threshold=at, referred=sent)
    codes = np.arange(len(people.label))
    return (
        _judged(people.label, people.positive, codes, cut),
        referral_view_intervals(after.label, after.positive, after.referred, codes, reader=reader),
    )


def _ungradable(every: Predictions, gradable: Bools, cut: FrozenThreshold) -> Ungradable:
    patient = every.image_id if every.patient_id is None else every.patient_id
    said = is_positive(every.prob, cut.value) & gradable
    return ungradable_images(every.label == 1, said, gradable, patient)
