"""All numbers of a screening programme for one predictions file, at frozen thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.tabular import Tabular
from retinabench.metrics.clinical.decision_curve import (
    THRESHOLDS,
    DecisionCurve,
    net_benefit,
    predictive_value_intervals,
)
from retinabench.metrics.clinical.operating_points import (
    GOALS,
    OperatingPoint,
    TwoByTwo,
    Verdict,
    judge_goals,
    sensitivity_at_specificity,
    specificity_at_sensitivity,
)
from retinabench.metrics.clinical.screening import patient_level, referral_view_intervals
from retinabench.metrics.inference.interval import Interval, finite_or_none
from retinabench.metrics.sets import SET_LABELS
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.predictions.table import Predictions

SCHEMA = "retinabench.clinic/1"
Intervals = Mapping[str, Mapping[str, Interval]]


@dataclass(frozen=True)
class JudgedTable:
    """A 2x2 table and what it says of the clinical goals."""

    table: TwoByTwo
    verdicts: tuple[Verdict, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the table's part of the JSON."""
        return {
            **self.table.to_dict(),
            "goals": {
                verdict.goal: {
                    **asdict(GOALS[verdict.goal]),
                    "estimate": [
                        finite_or_none(verdict.sensitivity[0]),
                        finite_or_none(verdict.specificity[0]),
                    ],
                    "bound": [finite_or_none(verdict.sensitivity[1]), finite_or_none(verdict.specificity[1])],
                    "estimate_met": verdict.estimate_met,
                    "bound_met": verdict.bound_met,
                }
                for verdict in self.verdicts
            },
        }


@dataclass(frozen=True)
class SetScreening:
    """The screening numbers of one set.

    Args:
        images: 2x2 table and goals by image, of the model alone, before any referral.
        patients: The same by patient, where patients are known; a patient is positive if one eye is.
        referred: Number of images referred.
        readings: Reading of "referred" -> rate -> value with its interval; see `referral_views`.
        predictive_values: Prevalence, as text -> `ppv` and `npv`.
        operating_points: Goal -> the points at its sensitivity and at its specificity.
        decision_curve: Net benefit of the model alone.
        with_reader: Net benefit of the model with a reader of the referred.
    """

    images: JudgedTable
    patients: JudgedTable | None
    referred: int
    readings: Intervals
    predictive_values: Intervals
    operating_points: Mapping[str, Mapping[str, OperatingPoint]]
    decision_curve: DecisionCurve
    with_reader: DecisionCurve

    def to_dict(self) -> dict[str, Any]:
        """Return the set's part of the JSON."""
        curve = self.decision_curve
        content: dict[str, Any] = {"images": self.images.to_dict()}
        if self.patients is not None:
            content["patients"] = self.patients.to_dict()
        return content | {
            "referred": self.referred,
            "readings": _intervals_dict(self.readings),
            "predictive_values": _intervals_dict(self.predictive_values),
            # A threshold of infinity, where no image is positive, becomes None.
            "operating_points": {
                goal: {
                    kind: {name: finite_or_none(value) for name, value in asdict(point).items()}
                    for kind, point in points.items()
                }
                for goal, points in self.operating_points.items()
            },
            "decision_curve": {
                "threshold": curve.threshold.tolist(),
                "model": curve.model.tolist(),
                "model_and_reader": self.with_reader.model.tolist(),
                "treat_all": curve.treat_all.tolist(),
                "treat_none": curve.treat_none,
            },
        }


@dataclass(frozen=True)
class ScreeningReport(Tabular):
    """The screening numbers of a predictions file: `report["in_domain"].images.table.sensitivity`.

    Args:
        threshold: An image is called referable at prob >= threshold; None: at prob > 1/2.
        referral_threshold: An image is referred where its uncertainty is larger; None: none is.
        uncertainty: What orders the referral.
        reader: Sensitivity and specificity of the human who reads the referred images.
        sets: Set name -> numbers.

    Examples:
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> rb.clinic(predictions, bootstrap=20)["in_domain"].images.table.sensitivity
        0.5
    """

    threshold: float | None
    referral_threshold: float | None
    uncertainty: str
    reader: tuple[float, float]
    sets: Mapping[str, SetScreening]

    def __getitem__(self, name: str) -> SetScreening:
        return self.sets[name]

    def records(self) -> list[dict[str, Any]]:
        """Return one dictionary per set, reading of "referred" and rate."""
        return [
            {"set": SET_LABELS[name], "reading": reading, "rate": rate, **vars(found)}
            for name, one in self.sets.items()
            for reading, rates in one.readings.items()
            for rate, found in rates.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return plain dictionaries, lists, text, finite numbers and None."""
        return {
            "schema": SCHEMA,
            "threshold": self.threshold,
            "referral_threshold": finite_or_none(self.referral_threshold),
            "uncertainty": self.uncertainty,
            "reader": {"sensitivity": self.reader[0], "specificity": self.reader[1]},
            "sets": {name: one.to_dict() for name, one in self.sets.items()},
        }


def clinic(
    predictions: Predictions,
    threshold: float | None = None,
    referral_threshold: float | None = None,
    *,
    uncertainty: str = "auto",
    prevalences: Sequence[float] = (0.05, 0.1, 0.2, 0.3),
    reader: tuple[float, float] = (0.9, 0.95),
    bootstrap: int = 1000,
    seed: int = 0,
) -> ScreeningReport:
    """Compute the screening numbers of the test split, per domain.

    The intervals of the image table and of the predictive values take images as independent; those of goals and readings
    are clustered by patient.

    Args:
        predictions: The predictions.
        threshold: An image is called referable at prob >= threshold; None: at prob > 1/2, as for accuracy.
        referral_threshold: An image goes to an expert where its uncertainty is larger; None: none is referred. Choose
            both thresholds on validation data (`transfer`).
        uncertainty: What orders the referral, as in `score`.
        prevalences: Prevalences at which PPV and NPV are stated.
        reader: Sensitivity and specificity of the human who reads the referred images.
        bootstrap: Replicates of the intervals of the readings.
        seed: Seed of the bootstrap.

    Returns:
        The numbers of each domain that has test images.

    Raises:
        InputError: There are no test images.

    Examples:
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> rb.clinic(predictions, referral_threshold=0.6, bootstrap=20)["in_domain"].referred
        2
    """
    table = {}
    for name in ("in_domain", "shifted"):
        part = predictions.select(domain=name, split="test")
        if part is None:
            continue
        values, _ = referral_uncertainty(part, uncertainty)
        sent = np.zeros(len(part), bool) if referral_threshold is None else values > referral_threshold
        table[name] = _screening(part, threshold, sent, prevalences, reader, bootstrap, seed)
    if not table:
        raise InputError("holds no image of the test split", file=predictions.source)
    kind = referral_uncertainty(predictions, uncertainty)[1]
    return ScreeningReport(threshold, referral_threshold, kind, reader, table)


def _screening(
    part: Predictions,
    threshold: float | None,
    sent: NDArray[np.bool_],
    prevalences: Sequence[float],
    reader: tuple[float, float],
    bootstrap: int,
    seed: int,
) -> SetScreening:
    y, p, patient = part.label, part.prob, part.patient_id
    said = p > 0.5 if threshold is None else p >= threshold
    by_image, verdicts = judge_goals(y, said, patient)
    by_patient = None
    if patient is not None:
        at = np.nextafter(0.5, 1) if threshold is None else threshold
        people = patient_level(y, p, patient, threshold=at)
        counted, judged = judge_goals(people.label, people.positive)
        by_patient = JudgedTable(counted, tuple(judged))
    cluster = np.arange(len(y)) if patient is None else patient
    views = referral_view_intervals(y, said, sent, cluster, reader=reader, replicates=bootstrap, seed=seed)
    values = {f"{q:g}": predictive_value_intervals(by_image, q) for q in prevalences}
    points = {
        name: {
            "sensitivity_at_specificity": sensitivity_at_specificity(y, p, goal.specificity),
            "specificity_at_sensitivity": specificity_at_sensitivity(y, p, goal.sensitivity),
        }
        for name, goal in GOALS.items()
    }
    return SetScreening(
        JudgedTable(by_image, tuple(verdicts)),
        by_patient,
        int(sent.sum()),
        _intervals(views),
        _intervals(values),
        points,
        net_benefit(y, p, THRESHOLDS),
        net_benefit(y, p, THRESHOLDS, referred=sent, reader=reader),
    )


def _intervals(values: Mapping[str, Mapping[str, tuple[float, float, float]]]) -> Intervals:
    return {key: {name: Interval(*ends) for name, ends in row.items()} for key, row in values.items()}


def _intervals_dict(values: Intervals) -> dict[str, Any]:
    return {key: {name: one.to_dict() for name, one in row.items()} for key, row in values.items()}
