"""What screening at a threshold does to patients: counts, rates with intervals, operating points, per set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError, shown
from retinabench.core.results import (
    Document,
    IntervalRow,
    JsonObject,
    Row,
    Tabular,
    draw_intervals,
    json_content,
    number_text,
    vars_of,
)
from retinabench.metrics import image_sets
from retinabench.metrics.calibration import CalibrationSummary, calibration_summary, input_notes
from retinabench.metrics.clinical.decision_curve import (
    THRESHOLDS,
    DecisionCurve,
    Missed,
    SimpleRule,
    Workload,
    best_simple_rule,
    missed_disease,
    net_benefit,
    workload,
)
from retinabench.metrics.clinical.groups import Subgroups, named_groups, subgroups_of
from retinabench.metrics.clinical.readers import BesideReaders, beside_readers
from retinabench.metrics.clinical.screening_table import (
    GOALS,
    PROPORTIONS,
    ClinicalGoal,
    Screened,
    TwoByTwo,
    judge_goals,
    likelihood_ratios,
    population_weight,
    predictive_value_intervals,
    rate_shares,
    reading_calls,
    referral_view_intervals,
    share_interval,
    two_by_two,
)
from retinabench.metrics.grades import GradeScores, grade_scores
from retinabench.metrics.image_sets import (
    SET_LABELS,
    DecisionThreshold,
    FrozenThreshold,
    ReferralRule,
    gradable,
    order_notes,
)
from retinabench.metrics.intervals import Interval, auroc_error, clustered_proportion, finite_or_none
from retinabench.metrics.patients import by_patient
from retinabench.metrics.smooth_calibration import SmoothCalibration, smooth_calibration
from retinabench.metrics.weighted_images import Bools, Cases, Floats, cluster_codes, is_positive
from retinabench.predictions.check import without_patients
from retinabench.predictions.table import Predictions

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
    """
    codes, _ = cluster_codes(cluster)
    excluded, as_referred = (
        {name: share_interval(shares, name, codes) for name in ("sensitivity", "specificity")}
        for shares in (rate_shares(label, positive & gradable, gradable), rate_shares(label, positive | ~gradable))
    )
    of = (gradable, np.ones(len(label))), (~gradable, label), (~gradable, ~label)
    share, ill, healthy = (clustered_proportion(right, among, codes) for right, among in of)
    return Ungradable(int((~gradable).sum()), share, ill, healthy, excluded, as_referred)


@dataclass(frozen=True)
class JudgedTable:
    """A 2x2 table, its proportions with intervals clustered by patient, and what it says of the clinical goals."""

    table: TwoByTwo
    rates: Mapping[str, Interval]
    goals: Mapping[str, JsonObject]

    sensitivity = property(lambda self: self.rates["sensitivity"])
    specificity = property(lambda self: self.rates["specificity"])

    def to_dict(self) -> JsonObject:
        rates: JsonObject = {}
        for name, one in self.rates.items():
            successes, trials = self.table.counts(name)
            why = {} if trials else {"why": "no such case"}
            rates[name] = {**one.to_dict(), "successes": successes, "trials": trials, **why}
        return {**vars_of(self.table), **rates, "goals": json_content(self.goals)}


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
    cut, every, part = stated.threshold, part, part.take(np.flatnonzero(gradable))
    y, p = part.label == 1, part.prob
    said = is_positive(p, cut.value)
    values, _ = image_sets.referral_uncertainty(part, stated.referral.uncertainty, threshold=cut.value)
    sent = stated.referral.refers(values)
    codes, _ = cluster_codes(part.patients)
    patients, patient_readings = _by_patient(part, stated)
    weight = population_weight(y, stated.population)
    readings = referral_view_intervals(y, said, sent, codes, reader=stated.reader, weight=weight)
    alone, after = _judged(y, said, codes, stated, weight), readings["reader"]
    of_model, with_reader = (alone.sensitivity, alone.specificity), (after["sensitivity"], after["specificity"])
    prevalences = sorted({*stated.prevalences, *([] if stated.population is None else [stated.population])})
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
        simple_rule=best_simple_rule(y, p, said, sent, codes, weight, stated),
        readings=readings,
        patient_readings=patient_readings,
        predictive_values={
            number_text(q): predictive_value_intervals(*of_model, q)
            | {f"{name}_with_reader": one for name, one in predictive_value_intervals(*with_reader, q).items()}
            for q in prevalences
        },
        likelihood_ratios={"alone": likelihood_ratios(*of_model), "with_reader": likelihood_ratios(*with_reader)},
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
    sent = stated.referral.refers(image_sets.referral_uncertainty(people, "own")[0])
    return _judged(y, said, codes, stated), referral_view_intervals(y, said, sent, codes, reader=stated.reader)


SCHEMA = "retinabench.clinic/2"


@dataclass(frozen=True)
class ScreeningReport(Tabular):
    """The screening numbers of a predictions file: `report["in_domain"].images.table.sensitivity`.

    Args:
        stated: The frozen thresholds of decision and referral, the reader, prevalences and prices.
        sets: Set name -> numbers.
        notes: What a reader of the numbers must know.
        source: The file.

    Examples:
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> rb.clinic(predictions)["in_domain"].images.table.sensitivity
        0.5
    """

    stated: Screened
    sets: Mapping[str, SetScreening]
    notes: tuple[str, ...] = ()
    source: str | None = None

    def __getitem__(self, name: str) -> SetScreening:
        return self.sets[name]

    @property
    def threshold(self) -> FrozenThreshold:
        """The decision threshold."""
        return self.stated.threshold

    @property
    def referral(self) -> ReferralRule:
        """The rule of referral."""
        return self.stated.referral

    @property
    def reader(self) -> tuple[float, float]:
        """Sensitivity and specificity of the human who reads the referred images."""
        return self.stated.reader

    def records(self) -> list[Row]:
        """Return one dictionary per set, reading of "referred" and rate."""
        readings = [(SET_LABELS[name], *of) for name, one in self.sets.items() for of in one.readings.items()]
        rows = [(name, reading, *of) for name, reading, rates in readings for of in rates.items()]
        return [{"set": name, "reading": reading, "rate": rate, **vars(found)} for name, reading, rate, found in rows]

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw sensitivity and specificity per image, of the model alone and with every referred image called positive."""
        rows = [
            IntervalRow(f"{rate}, {reading}, {SET_LABELS[name].lower()}", *vars(getattr(table, rate)).values())
            for rate in ("sensitivity", "specificity")
            for name, one in self.sets.items()
            for reading, table in (("model alone", one.images), ("with referral", one.pathway))
        ]
        return draw_intervals(rows, axes)

    def to_dict(self) -> JsonObject:
        """Return plain dictionaries, lists, text, finite numbers and None."""
        rules: JsonObject = {"threshold": self.threshold.to_dict(), "referral": self.referral.to_dict()}
        rules |= {
            "referral_threshold": finite_or_none(self.referral.threshold),
            "uncertainty": self.referral.uncertainty,
        }
        rules["reader"] = {"sensitivity": self.reader[0], "specificity": self.reader[1]}
        names = ("referral_cost", "images_per_hour", "population", "harm")
        prices = {name: getattr(self.stated, name) for name in names}
        head = {"schema": SCHEMA, "source": self.source and shown(self.source)}
        return {**head, **rules, **prices, "notes": list(self.notes), "sets": json_content(self.sets)}


def clinic(
    predictions: Predictions,
    threshold: DecisionThreshold | float | str | None = None,
    referral_threshold: float | None = None,
    *,
    referral_rate: float | None = None,
    uncertainty: str = "auto",
    prevalences: Sequence[float] = (0.05, 0.1, 0.2, 0.3),
    reader: tuple[float, float] = (0.9, 0.95),
    referral_cost: float = 0.0,
    images_per_hour: float = 60.0,
    subgroups: Sequence[str] | None = None,
    goal: tuple[float, float] = (0.85, 0.8),
    population: float | None = None,
    harm: float | None = None,
) -> ScreeningReport:
    """Compute the screening numbers of the test split, per domain.

    Every rate is per image unless it says per patient, with an interval clustered by patient; only scores of grades are resampled. Images whose
    column `gradable` is 0 are left out of all numbers but `ungradable`.

    Args:
        predictions: The predictions.
        threshold: The decision threshold, or what chooses it; see `DecisionThreshold`. None: above 0.5.
        referral_threshold: An image goes to an expert where its uncertainty is larger.
        referral_rate: Instead, the share of validation (else test) images that the expert reads; 0.2 where neither is given.
        uncertainty: What orders the referral, as in `score`.
        prevalences: Prevalences at which PPV and NPV are stated.
        reader: Sensitivity and specificity of the human who reads the referred images.
        referral_cost: Price of one referral, in detected referable images: 0.02 says that 50 readings are worth one.
        images_per_hour: What an expert reads in an hour.
        subgroups: Further columns to look at; None for all that make groups.
        goal: Sensitivity and specificity that are to be reached, both at once (co-primary endpoints).
        population: Share of referable images where the model will work, if the study has more or fewer (enrichment): the shares of all
            images, the workload and the net benefit are those of this population.
        harm: False alarms that weigh as much as one missed image; None: (1 - t) / t at the decision threshold t.

    Returns:
        The numbers of each domain that has gradable test images.

    Raises:
        InputError: The file holds no test images, or an argument is out of its range.

    Examples:
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> report = rb.clinic(predictions, referral_rate=0.5)
        >>> report["in_domain"].referred, report["in_domain"].missed.images
        (2, ())
    """
    if not 0 <= referral_cost < np.inf:
        raise InputError(f"the price of a referral is {referral_cost:g}", hint="It is 0 or more, such as 0.02.")
    if not images_per_hour > 0:
        raise InputError(f"an expert reads {images_per_hour:g} images per hour", hint="Give more than 0.")
    for value in (*prevalences, *([] if population is None else [population])):
        if not 0 < value < 1:
            raise InputError(f"the prevalence is {value:g}", hint="It lies between 0 and 1, such as 0.1.")
    if harm is not None and not 0 < harm < np.inf:
        hint = "Say how many false alarms weigh as much as a missed image, such as 20."
        raise InputError(f"the harm is {harm:g}", hint=hint)
    if not all(0 < one < 1 for one in goal):
        hint = "Sensitivity and specificity lie between 0 and 1, such as 0.85 and 0.8."
        raise InputError(f"the goal is {goal}", hint=hint)
    if referral_threshold is None and referral_rate is None:
        referral_rate = 0.2
    good = gradable(predictions)
    if not (good & (predictions.split == "test")).any():
        hint = "The numbers are of the test split; leave the column 'split' out if all images belong to it."
        raise InputError("holds no gradable image of the test split", file=predictions.source, hint=hint)
    usable = predictions if good.all() else predictions.take(np.flatnonzero(good))
    cut = DecisionThreshold.parse(image_sets.DEFAULT if threshold is None else threshold).freeze(usable)
    rule = image_sets.referral_rule(usable, uncertainty, cut.value, threshold=referral_threshold, rate=referral_rate)
    stated = Screened(cut, rule, prevalences, reader, referral_cost, images_per_hour, subgroups, goal, population, harm)
    sets, validation = {}, predictions.select(domain="in_domain", split="validation", unlabelled=True)
    for name in ("in_domain", "shifted"):
        rows = np.flatnonzero((predictions.domain == name) & (predictions.split == "test"))
        if good[rows].any():
            sets[name] = screen_set(predictions.take(rows), good[rows], stated, validation)
    return ScreeningReport(stated, sets, tuple(_notes(predictions, stated, sets)), predictions.source)


def _notes(predictions: Predictions, stated: Screened, sets: Mapping[str, SetScreening]) -> list[str]:
    notes = [*predictions.notes]
    if predictions.patient_id is None:
        notes.append(without_patients(predictions.image_id.tolist()))
    if stated.threshold.note:
        notes.append(stated.threshold.note)
    test, cut = gradable(predictions) & (predictions.split == "test"), stated.threshold.value
    for name, one in sets.items():
        notes += order_notes(SET_LABELS[name], one.auroc)
        part = predictions.take(np.flatnonzero(test & (predictions.domain == name)))
        values, _ = image_sets.referral_uncertainty(part, stated.referral.uncertainty, threshold=cut)
        notes += input_notes(SET_LABELS[name], part.label, part.prob, values, cluster_codes(part.patients)[0], cut)
        for group in one.subgroups.groups if one.subgroups else ():
            if (auroc := group.rates["auroc"].alone).high < 0.5:
                notes += order_notes(f"{SET_LABELS[name]}, {group.column} {group.value}:", auroc)
        if stated.population is not None:
            notes.append(
                f"{SET_LABELS[name].lower()}: shares of all images, workload and net benefit are those of a population with "
                f"{100 * stated.population:g} % referable images; the study has {100 * one.images.table.rate('prevalence'):.3g} %"
            )
    rule = stated.referral
    if rule.same_images:
        notes.append(
            "the referral threshold is read off the uncertainties of the test images themselves (not their labels): "
            "there is no validation split"
        )
    for name, one in sets.items():
        if rule.rate is not None and abs(one.read_here - rule.rate) > 0.02:
            notes.append(
                f"{SET_LABELS[name].lower()}: {100 * one.read_here:.1f} % of the images are read where "
                f"{100 * rule.rate:.1f} % was asked for, because of ties or another distribution of the uncertainty"
            )
    skipped = {column: why for one in sets.values() if one.subgroups for column, why in one.subgroups.skipped.items()}
    notes += [f"column '{column}' makes no subgroups: {why}" for column, why in skipped.items()]
    return notes
