"""What was frozen and certified on validation, as later images are held against it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.results import JsonObject
from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.guarantees.risks import PER, SEVERE, Per, ReferralCases, weights
from retinabench.metrics.monitoring.follow_up import Watched

Bools = NDArray[np.bool_]
SCHEMA = "retinabench.transfer/"
TRIAGE = "retinabench.triage/"
_HINT = "Write it with: retinabench transfer FILE --confidence 0.95 --json transfer.json."


@dataclass(frozen=True)
class Certified:
    """Frozen thresholds and certified goals."""

    threshold: float
    decision: float
    uncertainty: str
    goals: tuple[Goal, ...]
    per: Per
    most_images: int

    def retained(self, images: Watched) -> Bools:
        """(N,) whether the model decides alone."""
        return np.asarray(images.uncertainty <= self.threshold)

    def cases(self, images: Watched) -> ReferralCases:
        """Return the images as a referral rule sees them, weighted as in the estimand."""
        codes = np.unique(images.patient, return_inverse=True)[1]
        above = images.prob > self.decision if self.decision == 0.5 else images.prob >= self.decision
        severe = images.grade >= SEVERE if (images.grade >= 0).any() else None
        return ReferralCases(images.label, above, images.uncertainty, codes, weights(codes, self.per), severe)

    def sums(self, goal: Goal, images: Watched) -> tuple[Bools, Bools]:
        """(N,) whether an image is in num and in den of a goal; in neither where its label is needed and unknown."""
        num, den = goal.spec.sums(self.cases(images), self.threshold)
        known = images.labelled | goal.spec.of_referred
        return (num > 0) & known, (den > 0) & known

    def to_dict(self) -> JsonObject:
        """Return the certificate for JSON."""
        return {
            "threshold": self.threshold if math.isfinite(self.threshold) else str(self.threshold),
            "decision": self.decision,
            "uncertainty": self.uncertainty,
            "goals": [one.to_dict() for one in self.goals],
            "per": self.per,
        }


def read_certificate(path: Path) -> Certified:
    """Read what `retinabench transfer --json` wrote."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError("does not exist", file=path) from None
    except (OSError, ValueError, RecursionError):
        raise InputError("is no JSON file", file=path, hint=_HINT) from None
    if isinstance(content, dict) and str(content.get("schema", "")).startswith(TRIAGE):
        raise InputError("holds three zones, which the monitor does not follow", file=path, hint=_HINT)
    if not isinstance(content, dict) or not str(content.get("schema", "")).startswith(SCHEMA):
        raise InputError("is not the JSON of a certificate", file=path, hint=_HINT)
    certificate = content.get("certificate")
    if not isinstance(certificate, dict) or certificate.get("threshold") is None:
        raise InputError("holds no certified threshold", file=path, hint=_HINT)
    try:
        return _certified(content, certificate)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"is not a whole certificate ({error})", file=path, hint=_HINT) from None


def _certified(content: JsonObject, certificate: JsonObject) -> Certified:
    goals = tuple(
        Goal(str(one["goal"]["target"]), float(one["goal"]["goal"])) for one in certificate["goals"]
    )
    per, uncertainty = content["per"], content["uncertainty"]
    if per not in PER or not goals or not isinstance(uncertainty, str):
        raise ValueError("no goal, or an unknown estimand or uncertainty")
    return Certified(
        float(certificate["threshold"]),
        float(content["decision_threshold"]["value"]),
        uncertainty,
        goals,
        per,
        int(certificate["most_images"]),
    )
