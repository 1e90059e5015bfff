"""`clinic`: whether a model's uncertainty can drive referral, against doing nothing and against calling everyone.

The baseline predicts the same for every image, that of the larger class ("not referable" below a prevalence of one
half), and for probabilities the prevalence of the set. A model below it is worse than no model.

`baseline` in the JSON of `score` holds the larger class and its accuracy, `net_benefit_gain`, `brier_skill`, `positive_patients`, and
`corrected`, the same model with every log odds moved by `offset` so that as many images are positive as predicted. `judge` turns them into a verdict;
`docs/clinic.md` lists every verdict with its rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from retinabench.core.errors import InputError
from retinabench.core.results import Document, IntervalRow, JsonObject, Row, Tabular, draw_intervals, json_content
from retinabench.core.untrusted import shown
from retinabench.metrics.arrays import Floats
from retinabench.metrics.bootstrap import cluster_bootstrap
from retinabench.metrics.calibration import calibration_line_of, correct_prior, ece_positive_class_of
from retinabench.metrics.classification import (
    accuracy_of,
    brier_skill_of,
    false_alarm_price,
    net_benefit_gain_of,
    sensitivity_of,
)
from retinabench.metrics.clinical.screening import Screened, SetScreening, screen_set
from retinabench.metrics.clinical.thresholds import (
    DEFAULT,
    DecisionThreshold,
    FrozenThreshold,
    ReferralRule,
    referral_rule,
)
from retinabench.metrics.image_sets import SET_LABELS, inversion_notes
from retinabench.metrics.intervals import Ends
from retinabench.metrics.proportions import Interval, finite_or_none
from retinabench.metrics.registry import SCORES
from retinabench.metrics.weighted_images import Cases, Weighted, ratio
from retinabench.predictions.check import Check, without_patients
from retinabench.predictions.table import Predictions
from retinabench.predictions.values import GRADABLE, gradable_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Kind = Literal[
    "one class",
    "inverted",
    "never positive",
    "always positive",
    "not useful",
    "probabilities",
    "not shown",
    "informative",
    "useful",
]

POOR = 0.7
"""An AUROC below this is called poor discrimination (Hosmer, Lemeshow and Sturdivant, Applied logistic regression, 2013)."""

FEW_PATIENTS = 10  # Fewer patients with disease than this say little about sensitivity.
SCHEMA = "retinabench.clinic/2"


@dataclass(frozen=True)
class PriorCorrection(Document):
    """The scores after every log odds is moved by `offset`, so that as many images are positive as predicted.

    Class weights in training move the log odds by the logarithm of their ratio; the order of the images stays.
    """

    offset: float
    chosen_on: str
    accuracy: float
    sensitivity: float
    brier_skill: float
    ece_positive_class: float


@dataclass(frozen=True)
class Baseline(Document):
    """The baseline of a set of images and what the model adds to it, per image."""

    answer: str
    accuracy: float
    net_benefit_gain: Interval
    brier_skill: Interval
    positive_patients: int
    threshold: float
    corrected: PriorCorrection | None


def baseline_of(
    w: Weighted, validation: Predictions | None = None, *, bootstrap: int = 1000, seed: int = 0, level: float = 0.95
) -> Baseline:
    cases = w.cases
    codes, patients, positive = cases.patient, int(cases.patient.max()) + 1, cases.label
    price = false_alarm_price(cases.threshold)
    benefit = np.where(positive, 1.0, -price)  # of calling the image referable
    columns = None, positive, np.where(cases.called, benefit, 0.0), benefit, (cases.prob - positive) ** 2
    sums = np.stack([np.bincount(codes, column, patients) for column in columns])

    def statistic(weight: Floats) -> Floats:
        """(R, 2) gain in net benefit and Brier skill for weights (R, G) of patients."""
        count, positives, model, every, squares = np.einsum("kg,rg->kr", sums, weight)
        share = positives / count
        variance = share * (1 - share)
        return np.stack([(model - np.maximum(0.0, every)) / count, 1 - ratio(squares / count, variance)], axis=1)

    gain, skill = float(net_benefit_gain_of(w)), float(brier_skill_of(w))
    ends = [Ends(), Ends()]
    if bootstrap:
        draws = cluster_bootstrap(statistic, np.arange(patients), replicates=bootstrap, seed=seed)
        methods = SCORES["net_benefit_gain"].interval, SCORES["brier_skill"].interval
        ends = [one.ends([w], v, d, level) for one, v, d in zip(methods, (gain, skill), draws.T, strict=True)]
    return Baseline(
        "referable" if w.positives > w.negatives else "not referable",
        float(max(w.positives, w.negatives) / w.total),
        Interval(gain, ends[0].low, ends[0].high),
        Interval(skill, ends[1].low, ends[1].high),
        len(np.unique(codes[positive])),
        cases.threshold,
        _corrected(w, validation),
    )


def _corrected(w: Weighted, validation: Predictions | None) -> PriorCorrection | None:
    for split, source in (("validation", validation), ("test", None)):
        fitted_on = w if source is None else Cases(source.label, source.prob).weighted()
        offset = calibration_line_of(fitted_on).in_the_large
        if np.isfinite(offset) and (source is not None or split == "test"):
            break
    if not np.isfinite(offset):
        return None
    prob = correct_prior(w.cases.prob, float(np.exp(-offset)))
    moved = Cases(w.cases.label, prob, threshold=w.cases.threshold).weighted()
    scores = [float(score(moved)) for score in (accuracy_of, sensitivity_of, brier_skill_of, ece_positive_class_of)]
    return PriorCorrection(float(offset), split, *scores)


def judge(
    *, sensitivity: Interval, specificity: Interval, auroc: Interval, net_benefit_gain: Interval, brier_skill: Interval
) -> Kind:
    """Say in one word what a model is worth against the baseline; each claim needs its interval, where there is one.

    *Useful* is said of decisions alone; probabilities that beat the prevalence are *informative*.
    """
    if not (np.isfinite(sensitivity.value) and np.isfinite(specificity.value)):
        return "one class"
    if _below(auroc, 0.5):
        return "inverted"
    if sensitivity.value == 0:
        return "never positive"
    if specificity.value == 0:
        return "always positive"
    if _below(net_benefit_gain, 0) and _below(brier_skill, 0):
        return "not useful" if auroc.value < POOR else "probabilities"
    if _above_zero(net_benefit_gain):
        return "useful"
    return "informative" if _above_zero(brier_skill) else "not shown"


def _below(one: Interval, bound: float) -> bool:
    return bool((one.high if np.isfinite(one.high) else one.value) < bound)


def _above_zero(one: Interval) -> bool:
    return bool((one.low if np.isfinite(one.low) else one.value) > 0)


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
        return [
            {"set": SET_LABELS[name], "reading": reading, "rate": rate, **vars(found)}
            for name, one in self.sets.items()
            for reading, rates in one.readings.items()
            for rate, found in rates.items()
        ]

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
        return {
            "schema": SCHEMA,
            "source": self.source and shown(self.source),
            "threshold": self.threshold.to_dict(),
            "referral": self.referral.to_dict(),
            "referral_threshold": finite_or_none(self.referral.threshold),
            "uncertainty": self.referral.uncertainty,
            "reader": {"sensitivity": self.reader[0], "specificity": self.reader[1]},
            "referral_cost": self.stated.referral_cost,
            "images_per_hour": self.stated.images_per_hour,
            "population": self.stated.population,
            "harm": self.stated.harm,
            "notes": list(self.notes),
            "sets": json_content(self.sets),
        }


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
        InputError: There are no test images, or an argument is out of its range.

    Examples:
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> report = rb.clinic(predictions, referral_rate=0.5)
        >>> report["in_domain"].referred, report["in_domain"].missed.images
        (2, ())
    """
    _check_stated((*prevalences, *([] if population is None else [population])), referral_cost, images_per_hour)
    if harm is not None and not 0 < harm < np.inf:
        raise InputError(
            f"the harm is {harm:g}", hint="Say how many false alarms weigh as much as a missed image, such as 20."
        )
    if not all(0 < one < 1 for one in goal):
        raise InputError(
            f"the goal is {goal}", hint="Sensitivity and specificity lie between 0 and 1, such as 0.85 and 0.8."
        )
    if referral_threshold is None and referral_rate is None:
        referral_rate = 0.2
    check = Check(predictions.source)
    gradable = gradable_rows(check, predictions.subgroups.get(GRADABLE), len(predictions))
    if not (gradable & (predictions.split == "test")).any():
        hint = "The numbers are of the test split; leave the column 'split' out if all images belong to it."
        raise InputError("holds no gradable image of the test split", file=predictions.source, hint=hint)
    usable = predictions if gradable.all() else predictions.take(np.flatnonzero(gradable))
    cut = DecisionThreshold.parse(DEFAULT if threshold is None else threshold).freeze(usable)
    rule = referral_rule(usable, uncertainty, cut.value, threshold=referral_threshold, rate=referral_rate)
    stated = Screened(cut, rule, prevalences, reader, referral_cost, images_per_hour, subgroups, goal, population, harm)
    sets, validation = {}, predictions.select(domain="in_domain", split="validation", unlabelled=True)
    for name in ("in_domain", "shifted"):
        rows = np.flatnonzero((predictions.domain == name) & (predictions.split == "test"))
        if gradable[rows].any():
            sets[name] = screen_set(predictions.take(rows), gradable[rows], stated, validation)
    return ScreeningReport(stated, sets, tuple(_notes(predictions, stated, sets)), predictions.source)


def _check_stated(prevalences: Sequence[float], referral_cost: float, images_per_hour: float) -> None:
    if not referral_cost >= 0 or not np.isfinite(referral_cost):
        raise InputError(f"the price of a referral is {referral_cost:g}", hint="It is 0 or more, such as 0.02.")
    if not images_per_hour > 0:
        raise InputError(f"an expert reads {images_per_hour:g} images per hour", hint="Give more than 0.")
    for value in prevalences:
        if not 0 < value < 1:
            raise InputError(f"the prevalence is {value:g}", hint="It lies between 0 and 1, such as 0.1.")


def _notes(predictions: Predictions, stated: Screened, sets: Mapping[str, SetScreening]) -> list[str]:
    notes = [*predictions.notes]
    if predictions.patient_id is None:
        notes.append(without_patients(predictions.image_id.tolist()))
    if stated.threshold.note:
        notes.append(stated.threshold.note)
    for name, one in sets.items():
        notes += inversion_notes(name, one.auroc.value, one.auroc.high)
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
