"""What screening at a threshold does to patients: counts, rates with intervals, operating points, per set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.results import Document, JsonObject, json_content, number_text, vars_of
from retinabench.metrics.arrays import Bools, Floats
from retinabench.metrics.bootstrap import cluster_codes
from retinabench.metrics.calibration import CalibrationSummary, calibration_summary
from retinabench.metrics.classification import false_alarm_price
from retinabench.metrics.clinical.by_patient import by_patient
from retinabench.metrics.clinical.decision_curve import (
    THRESHOLDS,
    DecisionCurve,
    Missed,
    Workload,
    missed_disease,
    net_benefit,
    workload,
)
from retinabench.metrics.clinical.groups import Subgroups, named_groups, subgroups_of
from retinabench.metrics.clinical.readers import BesideReaders, beside_readers
from retinabench.metrics.clinical.screening_table import (
    PROPORTIONS,
    TwoByTwo,
    likelihood_ratios,
    population_weight,
    predictive_value_intervals,
    rate_shares,
    reading_calls,
    referral_view_intervals,
    share_interval,
    two_by_two,
)
from retinabench.metrics.clinical.simple_rule import SimpleRule, best_simple_rule
from retinabench.metrics.clinical.thresholds import GOALS, ClinicalGoal, FrozenThreshold, ReferralRule, judge_goals
from retinabench.metrics.grades import GradeScores, grade_scores
from retinabench.metrics.intervals import auroc_error
from retinabench.metrics.proportions import Interval, clustered_proportion
from retinabench.metrics.smooth_calibration import SmoothCalibration, smooth_calibration
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.metrics.weighted_images import Cases, is_positive
from retinabench.predictions.table import Predictions

Intervals = Mapping[str, Mapping[str, Interval]]


@dataclass(frozen=True)
class Ungradable(Document):
    """Images without a usable prediction of the model, per image."""

    images: int
    imageability: Interval
    among_referable: Interval
    among_healthy: Interval
    excluded: Mapping[str, Interval]
    as_referred: Mapping[str, Interval]


def ungradable_images(label: Bools, positive: Bools, gradable: Bools, cluster: ArrayLike) -> Ungradable:
    """Return what ungradable images do to the rates, where they are left out and where they count as called referable.

    References:
        Abramoff et al., Pivotal trial of an autonomous AI-based diagnostic system, npj Digit. Med. 1:39 (2018), for imageability
        beside sensitivity and specificity.

    Shapes: `label` (N,), `positive` (N,), `gradable` (N,), `cluster` (N,).
    """
    codes, _ = cluster_codes(cluster)
    excluded, as_referred = (
        {name: share_interval(shares, name, codes) for name in ("sensitivity", "specificity")}
        for shares in (rate_shares(label, positive & gradable, gradable), rate_shares(label, positive | ~gradable))
    )
    return Ungradable(
        int((~gradable).sum()),
        clustered_proportion(gradable, np.ones(len(label)), codes),
        clustered_proportion(~gradable, label, codes),
        clustered_proportion(~gradable, ~label, codes),
        excluded,
        as_referred,
    )


@dataclass(frozen=True)
class JudgedTable:
    """A 2x2 table, its proportions with intervals clustered by patient, and what it says of the clinical goals."""

    table: TwoByTwo
    rates: Mapping[str, Interval]
    goals: Mapping[str, JsonObject]

    sensitivity = property(lambda self: self.rates["sensitivity"])
    specificity = property(lambda self: self.rates["specificity"])

    def to_dict(self) -> JsonObject:
        counts = {name: self.table.counts(name) for name in PROPORTIONS}
        rates = {
            name: {**one.to_dict(), "successes": counts[name][0], "trials": counts[name][1]}
            | ({} if counts[name][1] else {"why": "no such case"})
            for name, one in self.rates.items()
        }
        return {**vars_of(self.table), **rates, "goals": json_content(self.goals)}


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
    goal: tuple[float, float] = (0.85, 0.8)  # sensitivity and specificity that are to be reached
    population: float | None = None  # share of referable images where the model will work; None: that of the study
    harm: float | None = None  # false alarms per missed image; None: what the decision threshold states

    @property
    def price(self) -> float:
        return false_alarm_price(self.threshold.value) if self.harm is None else 1 / self.harm


@dataclass(frozen=True)
class SetScreening(Document):
    """The screening numbers of one set; gradable images alone, but in `ungradable`."""

    _optional, _keys = ("patients", "patient_readings", "grades"), {"referred": "read_by_expert"}

    images: JudgedTable
    patients: JudgedTable | None
    patient_readings: Intervals | None
    pathway: JudgedTable
    auroc: Interval
    referred: int
    missed: Missed
    workload: Workload
    simple_rule: SimpleRule
    readings: Intervals
    predictive_values: Intervals
    likelihood_ratios: Intervals
    decision_curve: DecisionCurve
    with_reader: DecisionCurve
    calibration: CalibrationSummary
    smooth_calibration: SmoothCalibration | None
    readers: Mapping[str, BesideReaders]
    subgroups: Subgroups | None
    ungradable: Ungradable | None
    grades: GradeScores | None = None

    @property
    def read(self) -> float:
        return self.workload.images.value

    @property
    def read_here(self) -> float:
        """The same in this study."""
        return self.referred / self.images.table.counts("prevalence")[1]

    def to_dict(self) -> JsonObject:
        content = super().to_dict()
        with_reader = content.pop("with_reader")
        content["decision_curve"] |= {"model_and_reader": with_reader["model"], "with_reader": with_reader}
        return content


def screen_set(
    part: Predictions, gradable: Bools, stated: Screened, validation: Predictions | None = None
) -> SetScreening:
    """Compute the screening numbers of one set, `gradable` (N,); validation images choose the sets of grades."""
    cut = stated.threshold
    every = part
    part = part.take(np.flatnonzero(gradable))
    y, p = part.label == 1, part.prob
    said = is_positive(p, cut.value)
    values, _ = referral_uncertainty(part, stated.referral.uncertainty, threshold=cut.value)
    sent = stated.referral.refers(values)
    codes, _ = cluster_codes(part.patients)
    patients, patient_readings = _by_patient(part, stated)
    weight = population_weight(y, stated.population)
    readings = referral_view_intervals(y, said, sent, codes, reader=stated.reader, weight=weight)
    alone, after = _judged(y, said, codes, stated, weight), readings["reader"]
    called = reading_calls(y, said, sent, stated.reader)["reader"]
    ranked = auroc_error(y, p, codes)
    return SetScreening(
        images=alone,
        patients=patients,
        pathway=_judged(y, said | sent, codes, stated, weight),
        auroc=Interval(ranked.auroc, *ranked.interval()),
        referred=int(sent.sum()),
        missed=missed_disease(part, said, sent, values),
        workload=workload(part, sent, stated.images_per_hour, weight),
        simple_rule=best_simple_rule(y, p, said, sent, codes, cut.value, stated.reader, stated.price, weight),
        readings=readings,
        patient_readings=patient_readings,
        predictive_values={
            number_text(q): {
                **predictive_value_intervals(alone.sensitivity, alone.specificity, q),
                **{
                    f"{name}_with_reader": value
                    for name, value in predictive_value_intervals(
                        after["sensitivity"], after["specificity"], q
                    ).items()
                },
            }
            for q in sorted({*stated.prevalences, *([] if stated.population is None else [stated.population])})
        },
        likelihood_ratios={
            "alone": likelihood_ratios(alone.sensitivity, alone.specificity),
            "with_reader": likelihood_ratios(after["sensitivity"], after["specificity"]),
        },
        decision_curve=net_benefit(y, p, THRESHOLDS, cluster=codes, weight=weight),
        with_reader=net_benefit(
            y, p, THRESHOLDS, referred=sent, reader=stated.reader, referral_cost=stated.referral_cost, cluster=codes,
            weight=weight,
        ),
        calibration=calibration_summary(y, p, codes),
        smooth_calibration=smooth_calibration(Cases(y, p, patient=codes).weighted()),
        readers=beside_readers(part, said, codes),
        subgroups=subgroups_of(part, called, sent, stated.subgroups) if part.subgroups or stated.subgroups else None,
        ungradable=None
        if gradable.all()
        else ungradable_images(every.label == 1, is_positive(every.prob, cut.value), gradable, every.patients),
        grades=grade_scores(part, values, validation, named_groups(part, stated.subgroups), threshold=cut.value),
    )  # fmt: skip


def _judged(
    y: Bools, said: Bools, codes: NDArray[np.intp], stated: Screened, weight: Floats | None = None
) -> JudgedTable:
    goals = {"stated": ClinicalGoal(*stated.goal, "stated")} | GOALS
    shares = rate_shares(y, said, weight)
    rates = {name: share_interval(shares, name, codes) for name in PROPORTIONS}
    judged = judge_goals(y, said, codes, goals=goals, exploratory=stated.threshold.same_images)
    return JudgedTable(two_by_two(y, said), rates, judged)


def _by_patient(part: Predictions, stated: Screened) -> tuple[JudgedTable | None, Intervals | None]:
    if part.patient_id is None:
        return None, None
    people = by_patient(part, stated.referral.uncertainty, stated.threshold.value)
    y, said, codes = people.label == 1, is_positive(people.prob, stated.threshold.value), np.arange(len(people))
    sent = stated.referral.refers(referral_uncertainty(people, "own")[0])
    return _judged(y, said, codes, stated), referral_view_intervals(y, said, sent, codes, reader=stated.reader)
