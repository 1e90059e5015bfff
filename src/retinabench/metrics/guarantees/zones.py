"""The zones of `triage.py`: their goals, their certificates, and where they end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.certificate import Certificate, certify, rounded_up
from retinabench.metrics.guarantees.goals import Goal, as_goals
from retinabench.metrics.guarantees.risks import ReferralCases
from retinabench.metrics.guarantees.sequence import SHARE
from retinabench.metrics.guarantees.threshold import meeting

Floats = NDArray[np.float64]
Side = Literal["negative", "positive"]
TARGETS_OF: dict[Side, tuple[str, ...]] = {
    "negative": ("npv", "sensitivity", "missed_referable", "severe_sensitivity", "missed_severe"),
    "positive": ("ppv", "specificity"),
}
"""Zone -> the targets that its threshold decides."""
BEGIN: dict[Side, float] = {"negative": SHARE, "positive": 0.05}
"""Share of the patients with which a sequence begins: few patients have an image that is clearly positive."""


def zone_goals(goals: Sequence[Goal | str]) -> dict[Side, tuple[Goal, ...]]:
    """Return the goals of the negative and of the positive zone."""
    hint = "npv, sensitivity, missed_referable, severe_sensitivity or missed_severe (negative zone); ppv or specificity (positive)."
    if not goals:
        raise InputError("the zones have no goal", hint=f"Give goals for {hint}")
    found = as_goals("selective_risk", 0.05, goals)
    for goal in found:
        if not any(goal.target in targets for targets in TARGETS_OF.values()):
            raise InputError(f"{goal.target} is the goal of no zone", hint=f"Zones have goals for {hint}")
    return {
        side: tuple(goal for goal in found if goal.target in targets) for side, targets in TARGETS_OF.items()
    }


def zone_cases(cases: ReferralCases, prob: Floats, side: Side) -> ReferralCases:
    """Return the images as the rule of one zone sees them: it calls all that it retains, and refers the others.

    Shapes: `prob` (N,).
    """
    positive = side == "positive"
    return replace(cases, positive=np.full(len(cases), positive), uncertainty=-prob if positive else prob)


def zone_certificates(
    cases: ReferralCases,
    prob: Floats,
    goals: Mapping[Side, tuple[Goal, ...]],
    delta: float,
    most_images: int | None = None,
) -> dict[Side, Certificate]:
    """Certify the goals of each zone, both zones together with confidence 1 - delta.

    Shapes: `prob` (N,).
    """
    if not 0 < delta < 1:  # of both zones, before it is halved
        raise InputError(f"delta is {delta:g}", hint="To be certified, it lies between 0 and 1.")
    asked = {side: of for side, of in goals.items() if of}
    return {
        side: certify(
            zone_cases(cases, prob, side), of, delta / len(asked), most_images=most_images, share=BEGIN[side]
        )
        for side, of in asked.items()
    }


def plain_ends(
    cases: ReferralCases, prob: Floats, goals: Mapping[Side, tuple[Goal, ...]]
) -> tuple[float | None, float | None]:
    """Return the ends of the widest zones that meet their goals by plain estimates and do not overlap.

    Shapes: `prob` (N,).
    """
    below, above = (_plain(zone_cases(cases, prob, side), goals[side]) for side in TARGETS_OF)
    return _apart(prob, cases.weight, below, above)


def certified_ends(
    cases: ReferralCases, prob: Floats, certificates: Mapping[Side, Certificate]
) -> tuple[float | None, float | None]:
    """Return the ends of the widest certified zones that do not overlap.

    Shapes: `prob` (N,).
    """
    below, above = (
        _certified_candidates(zone_cases(cases, prob, side), certificates.get(side)) for side in TARGETS_OF
    )
    return _apart(prob, cases.weight, below, above)


def _certified_candidates(cases: ReferralCases, certificate: Certificate | None) -> Floats:
    """The observed thresholds that a certificate covers, ascending."""
    if certificate is None or certificate.threshold is None:
        return np.empty(0)
    places = np.unique(rounded_up(cases.uncertainty))
    return np.asarray(places[(places >= certificate.begins) & (places <= certificate.threshold)])


def _plain(cases: ReferralCases, goals: Sequence[Goal]) -> Floats:
    """The observed thresholds that meet the goals by plain estimates, ascending; none where there are no goals."""
    if not goals:
        return np.empty(0)
    thresholds, met, _ = meeting(cases, goals)
    return np.asarray(thresholds[met & np.isfinite(thresholds)])


def _apart(prob: Floats, weight: Floats, below: Floats, above: Floats) -> tuple[float | None, float | None]:
    """The ends a < b of the zones that leave the fewest images to the expert; among equals two zones, and the smaller a.

    Shapes: `prob` (N,), `weight` (N,), `below` (A,), `above` (B,).
    """
    order = np.argsort(prob)
    cumulated = np.append(0.0, np.cumsum(weight[order]))
    a = np.append(-np.inf, below)
    starts = np.append(np.sort(-above), np.inf)
    b = starts[np.searchsorted(starts, a, side="right")]
    negative = cumulated[np.searchsorted(prob[order], a, side="right")]
    positive = cumulated[-1] - cumulated[np.searchsorted(prob[order], b, side="left")]
    automatic = np.round(negative + positive, 9)
    best = np.flatnonzero(automatic == automatic.max())
    both = best[np.isfinite(a[best]) & np.isfinite(b[best])]
    k = int((both if len(both) else best)[0])
    return _finite(a[k]), _finite(b[k])


def _finite(end: float) -> float | None:
    return float(end) if math.isfinite(end) else None
