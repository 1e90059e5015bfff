"""Sensitivity and specificity of every concept of an examination, and what their simultaneous intervals show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from retinabench.concepts.inference.confidence_sequences import RateEnds
from retinabench.concepts.inference.rates import ANYTHING, LEAST, Rate
from retinabench.concepts.questioning.examination import Examination
from retinabench.concepts.questioning.referral import Agreement
from retinabench.concepts.report.overlap import ConceptPair
from retinabench.core.results import JsonObject, json_content
from retinabench.reports.toolkit.number_format import Quantity

OUTCOMES = {"sensitivity": ("tp", "fn", 1), "specificity": ("tn", "fp", 0)}
"""Measure -> the names of its right and of its wrong answers, and the truth of its samples."""


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
    interval: RateEnds
    simultaneous: RateEnds
    goal: float | None = None
    counted: tuple[int, int] | None = None

    @property
    def kind(self) -> str:
        """What samples of that kind are called: "with" or "without" the concept."""
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


@dataclass(frozen=True, eq=False)
class ExaminationReport:
    """An examination with its reference and the tables that are reported with it."""

    examination: Examination
    goals: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    together: Sequence[ConceptPair] = ()
    referral: Agreement | None = None

    @cached_property
    def rates(self) -> Sequence[tuple[ConceptRate, ConceptRate]]:
        """Sensitivity and specificity of every concept."""
        return [
            (self._rate(place, name, "sensitivity"), self._rate(place, name, "specificity"))
            for place, name in enumerate(self.examination.bank.concepts)
        ]

    def _rate(self, place: int, concept: str, measure: str) -> ConceptRate:
        one = self.examination[concept]
        right, wrong, truth = OUTCOMES[measure]
        rate: Rate = getattr(one, measure)
        return ConceptRate(
            concept,
            measure,
            one.counts[right],
            one.counts[right] + one.counts[wrong],
            int(self.examination.bank.cells[place, truth]),
            rate.new or ANYTHING,
            rate.simultaneous or ANYTHING,
            self.goals.get(concept, {}).get(measure),
            (rate.patients.asked, rate.patients.of) if rate.patients else None,
        )

    @property
    def judged(self) -> Sequence[ConceptRate]:
        """The rates that are shown to reach or to miss their goals."""
        return [rate for pair in self.rates for rate in pair if rate.standing in ("met", "missed")]

    def to_dict(self) -> JsonObject:
        """Return the content of `examination.json`: the examination, and per judged rate what was found."""
        content = self.examination.to_dict()
        content["goals"] = self.goals
        content["findings"] = [
            {"concept": rate.concept, "measure": rate.measure, "goal": rate.goal, "finding": rate.standing}
            for rate in self.judged
        ]
        content["bank"]["together"] = json_content(self.together)
        return content if self.referral is None else content | {"referral": self.referral.to_dict()}


def recognition(sensitivity: ConceptRate, specificity: ConceptRate) -> str:
    """Return `recognised`, `reversed` or `open`: whether yes is said more often where the concept is, in new samples too.

    Guessing, in whatever proportion of yes and no, has sensitivity + specificity = 1. `recognised`: the lower ends of both
    simultaneous intervals add up to more; `reversed`: the upper ends to less.
    """
    low, high = (sensitivity.judged[k] + specificity.judged[k] for k in (0, 1))
    return "recognised" if low > 1 else "reversed" if high < 1 else "open"
