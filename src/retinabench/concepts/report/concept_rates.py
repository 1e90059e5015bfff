"""Sensitivity and specificity of every concept of an examination, and what their simultaneous intervals show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from retinabench.concepts.inference.rates import LEAST
from retinabench.reports.toolkit.number_format import Quantity

OUTCOMES = {"sensitivity": ("tp", "fn", "positives"), "specificity": ("tn", "fp", "negatives")}
"""Measure -> the names of its right answers, of its wrong answers and of its samples in the bank."""


@dataclass(frozen=True)
class ConceptRate:
    """Sensitivity or specificity of a concept.

    Attributes:
        concept: Its name.
        measure: "sensitivity" or "specificity".
        right: Number of right answers.
        asked: Number of questions asked.
        of: Number of samples of that kind in the bank.
        interval: For new samples, 95 % by itself.
        simultaneous: For new samples, together with all other rates.
        goal: The user's goal of this measure; None where there is none, and nothing is judged.
        counted: What the intervals for new samples count: answers, and samples in the bank; or patients, where they have several
            samples.
    """

    concept: str
    measure: str
    right: int
    asked: int
    of: int
    interval: tuple[float, float]
    simultaneous: tuple[float, float]
    goal: float | None = None
    counted: tuple[int, int] | None = None

    @property
    def kind(self) -> str:
        """How samples of that kind are spoken of: "with" or "without" the concept."""
        return "with" if self.measure == "sensitivity" else "without"

    @property
    def value(self) -> float:
        """Share of right answers among those given; NaN where none was."""
        return self.right / self.asked if self.asked else float("nan")

    @property
    def quantity(self) -> Quantity:
        """The rate with its own interval."""
        return Quantity(self.value, *self.interval)

    @property
    def stated(self) -> Quantity:
        """The rate with the interval by which it is judged."""
        return Quantity(self.value, *self.judged)

    @property
    def judged(self) -> tuple[float, float]:
        """The simultaneous interval; all rates are possible after fewer answers than `LEAST`."""
        return self.simultaneous if (self.counted or (self.asked, 0))[0] >= LEAST else (0.0, 1.0)

    @property
    def available(self) -> int:
        """How many independent answers the bank can give: samples, or patients where they have several."""
        return self.counted[1] if self.counted else self.of

    @property
    def standing(self) -> str:
        """`met` or `missed` where the simultaneous interval lies on one side of the goal, else `open`; `no goal` without one."""
        if self.goal is None:
            return "no goal"
        low, high = self.judged
        return "met" if low >= self.goal else "missed" if high < self.goal else "open"


def rates(found: Mapping[str, Any]) -> list[tuple[ConceptRate, ConceptRate]]:
    """Return sensitivity and specificity of every concept of an examination (`Examination.to_dict()`)."""
    pairs = []
    for concept, one in found["concepts"].items():
        made = []
        for measure, (right, wrong, samples) in OUTCOMES.items():
            k, n = one["counts"][right], one["counts"][right] + one["counts"][wrong]
            goal = found.get("goals", {}).get(concept, {}).get(measure)
            new, simultaneous = (_ends(one[measure].get(name)) for name in ("new", "simultaneous"))
            of = found["bank"][samples][concept]
            patients = one[measure].get("patients")
            counted = (patients["asked"], patients["of"]) if patients else None
            made.append(ConceptRate(concept, measure, k, n, of, new, simultaneous, goal, counted))
        pairs.append((made[0], made[1]))
    return pairs


def _ends(interval: Mapping[str, float] | None) -> tuple[float, float]:
    return (interval["low"], interval["high"]) if interval else (0.0, 1.0)


def recognition(sensitivity: ConceptRate, specificity: ConceptRate) -> str:
    """Return `recognised`, `reversed` or `open`: whether yes is said more often where the concept is, in new samples too.

    Guessing, in whatever proportion of yes and no, has sensitivity + specificity = 1. `recognised`: the lower ends of both
    simultaneous intervals add up to more; `reversed`: the upper ends to less.
    """
    low, high = (sensitivity.judged[k] + specificity.judged[k] for k in (0, 1))
    return "recognised" if low > 1 else "reversed" if high < 1 else "open"
