"""All of the clinic's numbers for one predictions file, at frozen thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.clinical.decision_curve import THRESHOLDS, net_benefit, predictive_value_intervals
from retinabench.metrics.clinical.goals import GOALS, Verdict, judge_goals
from retinabench.metrics.clinical.operating_points import (
    OperatingPoint,
    TwoByTwo,
    sensitivity_at_specificity,
    specificity_at_sensitivity,
)
from retinabench.metrics.clinical.screening import patient_level, referral_view_intervals
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.predictions.table import Predictions

SCHEMA = "retinabench.clinic/1"


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
) -> dict[str, Any]:
    """The clinic's numbers on the test split, per domain; ready for JSON, None where undefined.

    Arguments
    ---------
    threshold: referable is prob >= threshold; None: prob > 1/2, as for accuracy. referral_threshold: an image goes to an
    expert where its uncertainty is larger; None: nobody is referred. Choose both on validation data (`transfer`).
    prevalences: at which PPV and NPV are stated. reader: sensitivity and specificity of the human who reads the referred.

    Per set: `images` (2x2 table, goals) by image; `patients` the same by patient, any eye, where patients are known;
    `readings` of "referred"; `predictive_values`; `operating_points` at the goals' sensitivity and specificity; and
    `decision_curve`. The tables and the goals are of the model alone, before any referral.

    The intervals of the image table and of the predictive values take images as independent; goals and readings heed patients.
    """
    table: dict[str, Any] = {}
    for name in ("in_domain", "shifted"):
        part = predictions.select(domain=name, split="test")
        if part is None:
            continue
        values, _ = referral_uncertainty(part, uncertainty)
        sent = np.zeros(len(part), bool) if referral_threshold is None else values > referral_threshold
        table[name] = _one(part, threshold, sent, prevalences, reader, bootstrap, seed)
    if not table:
        raise InputError("holds no image of the test split", file=predictions.source)
    return {
        "schema": SCHEMA,
        "threshold": threshold,
        "referral_threshold": _number(referral_threshold),
        "uncertainty": referral_uncertainty(predictions, uncertainty)[1],
        "reader": {"sensitivity": reader[0], "specificity": reader[1]},
        "sets": table,
    }


def _one(
    part: Predictions,
    threshold: float | None,
    sent: NDArray[np.bool_],
    prevalences: Sequence[float],
    reader: tuple[float, float],
    bootstrap: int,
    seed: int,
) -> dict[str, Any]:
    y, p, patient = part.label, part.prob, part.patient_id
    said = p > 0.5 if threshold is None else p >= threshold
    by_image, verdicts = judge_goals(y, said, patient)
    out: dict[str, Any] = {"images": _judged(by_image, verdicts)}
    if patient is not None:
        at = np.nextafter(0.5, 1) if threshold is None else threshold
        people = patient_level(y, p, patient, threshold=at)
        out["patients"] = _judged(*judge_goals(people.label, people.positive))
    cluster = np.arange(len(y)) if patient is None else patient
    views = referral_view_intervals(y, said, sent, cluster, reader=reader, replicates=bootstrap, seed=seed)
    out["referred"] = int(sent.sum())
    out["readings"] = {
        name: {rate: _interval(*ends) for rate, ends in rates.items()} for name, rates in views.items()
    }
    out["predictive_values"] = {
        f"{q:g}": {name: _interval(*ends) for name, ends in predictive_value_intervals(by_image, q).items()}
        for q in prevalences
    }
    out["operating_points"] = {
        name: {
            "sensitivity_at_specificity": _point(sensitivity_at_specificity(y, p, goal.specificity)),
            "specificity_at_sensitivity": _point(specificity_at_sensitivity(y, p, goal.sensitivity)),
        }
        for name, goal in GOALS.items()
    }
    curve = net_benefit(y, p, THRESHOLDS)
    referred = net_benefit(y, p, THRESHOLDS, referred=sent, reader=reader)
    out["decision_curve"] = {
        "threshold": curve.threshold.tolist(),
        "model": curve.model.tolist(),
        "model_and_reader": referred.model.tolist(),
        "treat_all": curve.treat_all.tolist(),
        "treat_none": curve.treat_none,
    }
    return out


def _judged(table: TwoByTwo, verdicts: list[Verdict]) -> dict[str, Any]:
    return {
        **table.to_dict(),
        "goals": {
            verdict.goal: {
                **asdict(GOALS[verdict.goal]),
                "estimate": [_number(verdict.sensitivity[0]), _number(verdict.specificity[0])],
                "bound": [_number(verdict.sensitivity[1]), _number(verdict.specificity[1])],
                "estimate_met": verdict.estimate_met,
                "bound_met": verdict.bound_met,
            }
            for verdict in verdicts
        },
    }


def _point(point: OperatingPoint) -> dict[str, float | None]:
    """A threshold of infinity (nobody is positive) becomes None."""
    return {name: _number(value) for name, value in asdict(point).items()}


def _interval(value: float, low: float, high: float) -> dict[str, float | None]:
    return {"value": _number(value), "low": _number(low), "high": _number(high)}


def _number(value: float | None) -> float | None:
    return float(value) if value is not None and np.isfinite(value) else None
