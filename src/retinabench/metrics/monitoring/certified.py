"""What was frozen and certified on validation, as later images are held against it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.guarantees.risks import SEVERE, Cases, Goal, Per
from retinabench.metrics.monitoring.follow_up import Watched

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
SCHEMA = "retinabench.transfer/"


@dataclass(frozen=True)
class Certified:
    """Frozen thresholds and certified goals.

    Args:
        threshold: Images with a larger uncertainty are referred.
        decision: The model calls an image referable at prob >= decision; 0.5: at prob > 0.5.
        uncertainty: What orders the referral, as in `score`.
        goals: The certified targets with their goals.
        per: The estimand, one of `risks.PER`.
        most_images: The largest number of images of a validation patient.
    """

    threshold: float
    decision: float
    uncertainty: str
    goals: tuple[Goal, ...]
    per: Per
    most_images: int

    def retained(self, images: Watched) -> Bools:
        """(N,) whether the model decides alone."""
        return np.asarray(images.uncertainty <= self.threshold)

    def sums(self, goal: Goal, images: Watched) -> tuple[Floats, Floats]:
        """(N,) num and den of a goal, 0 or 1 each; both 0 where a label is needed and unknown."""
        above = images.prob > self.decision if self.decision == 0.5 else images.prob >= self.decision
        severe = images.grade >= SEVERE if (images.grade >= 0).any() else None
        n = len(images)
        cases = Cases(images.label, above, images.uncertainty, np.arange(n), np.ones(n), severe)
        num, den = goal.spec.sums(cases, self.threshold)
        known = np.ones(n) if goal.spec.of_referred else images.labelled.astype(np.float64)
        return num * known, den * known

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate for JSON."""
        return {
            "threshold": self.threshold if math.isfinite(self.threshold) else str(self.threshold),
            "decision": self.decision,
            "uncertainty": self.uncertainty,
            "goals": [one.to_dict() for one in self.goals],
            "per": self.per,
        }
