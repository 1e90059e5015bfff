"""What an examination shows about the model and about the samples: the facts that the page puts into sentences.

A model is judged by the intervals for new samples, as an audit is about the next patients, and by those that hold simultaneously
for all rates (`inference/rates.py`): all that is stated about missed and reached goals and about recognised concepts follows from
them, and is right together with a probability of at least 95 %, whichever questions were chosen and whenever they ended. As
this holds for all rates at once, a goal need not be stated beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retinabench.concepts.inference.confidence_sequences import needed
from retinabench.concepts.inference.rates import ALPHA
from retinabench.concepts.questioning.strategy_comparison import StrategyComparison, StrategyCourse
from retinabench.concepts.report.concept_rates import ConceptRate, ExaminationReport, recognition


@dataclass(frozen=True)
class Recognition:
    """The concepts by what their answers show: see `recognition`; `unknown` where a kind of sample was not asked."""

    recognised: Sequence[str]
    open: Sequence[str]
    reversed: Sequence[str]
    unknown: Sequence[str]


@dataclass(frozen=True)
class MissedGoal:
    """A rate below its goal.

    Attributes:
        rate: The rate.
        only_answer: "yes" or "no" where every answer about the concept was the same, else "".
    """

    rate: ConceptRate
    only_answer: str


@dataclass(frozen=True)
class ScarceSamples:
    """Concepts with too few samples of a kind to show a good model to be good: `needed` right answers would be the least."""

    measure: str
    goal: float
    needed: int
    rates: Sequence[ConceptRate]

    @property
    def kind(self) -> str:
        """What samples of that kind are called."""
        return self.rates[0].kind


@dataclass(frozen=True)
class Entangled:
    """Concepts that nearly always occur together; pairs of them differ in at most `most` samples."""

    names: Sequence[str]
    most: int


@dataclass(frozen=True)
class StrategyOrder:
    """Strategies whose interval lies below or above that of random questions, mostly, between 10 % and 50 % of the questions.

    Attributes:
        faster: Names of those below.
        slower: Names of those above.
        compared: Whether random questions were among the strategies.
        complete: Whether every question of the bank was asked in the end.
    """

    faster: Sequence[str]
    slower: Sequence[str]
    compared: bool
    complete: bool


def recognised(report: ExaminationReport) -> Recognition:
    """Return the concepts by what their answers show."""
    names: dict[str, list[str]] = {"recognised": [], "open": [], "reversed": [], "unknown": []}
    for pair in report.rates:
        seen = all(rate.asked for rate in pair)
        names[recognition(*pair) if seen else "unknown"].append(pair[0].concept)
    return Recognition(**names)


def missed_goals(report: ExaminationReport) -> list[MissedGoal]:
    """Return the rates that are shown to be below their goals."""
    missed = []
    for rate in report.judged:
        if rate.standing == "missed":
            counts = report.examination[rate.concept].counts
            said = {"yes": counts["tp"] + counts["fp"], "no": counts["tn"] + counts["fn"]}
            given = [answer for answer, count in said.items() if count]
            missed.append(MissedGoal(rate, given[0] if len(given) == 1 else ""))
    return missed


def scarce_samples(report: ExaminationReport) -> list[ScarceSamples]:
    """Return the kinds of samples of which there are too few, whatever the model, by measure and goal."""
    groups: dict[tuple[str, float], list[ConceptRate]] = {}
    for pair in report.rates:
        for rate in pair:
            if rate.goal is not None:
                groups.setdefault((rate.measure, rate.goal), []).append(rate)
    scarce = []
    for (measure, goal), judged in groups.items():
        least = needed(goal, ALPHA / report.examination.rates)
        few = [rate for rate in judged if rate.available < least]
        if few:
            scarce.append(ScarceSamples(measure, goal, least, few))
    return sorted(scarce, key=lambda one: (one.measure, one.goal))


def entangled(report: ExaminationReport) -> list[Entangled]:
    """Return the groups of concepts that nearly always occur together (`overlap.together`), pairs joined into groups."""
    groups: list[tuple[set[str], int]] = []
    for pair in report.together:
        joined, most = set(pair.concepts), pair.one
        for group in [group for group in groups if group[0] & joined]:
            groups.remove(group)
            joined, most = joined | group[0], max(most, group[1])
        groups.append((joined, most))
    names = report.examination.bank.concepts
    return [Entangled([name for name in names if name in joined], most) for joined, most in groups]


def left_open(report: ExaminationReport) -> list[ConceptRate]:
    """Return the rates that are still open although the bank has enough samples left to settle them.

    Without any goal these are all rates with questions left.
    """
    wanted = "open" if report.goals else "no goal"
    scarce = {(rate.concept, rate.measure) for few in scarce_samples(report) for rate in few.rates}
    return [
        rate
        for pair in report.rates
        for rate in pair
        if rate.asked < rate.of and rate.standing == wanted and (rate.concept, rate.measure) not in scarce
    ]


def strategy_order(report: ExaminationReport, comparison: StrategyComparison) -> StrategyOrder:
    """Compare every strategy of `compare_strategies` with random questions, by their 95 % intervals."""
    curves, questions = comparison.strategies, comparison.questions
    complete = questions[-1] == int(report.examination.bank.cells.sum())
    if "random" not in curves:
        return StrategyOrder([], [], False, complete)
    middle = slice(len(questions) // 10, 1 + len(questions) // 2)

    def mostly(below: StrategyCourse, above: StrategyCourse) -> bool:
        high, low = (np.asarray(one)[middle] for one in (below.high, above.low))
        return bool(np.mean(high < low) > 0.5)

    others = {name: curve for name, curve in curves.items() if name != "random"}
    faster = [name for name, curve in others.items() if mostly(curve, curves["random"])]
    slower = [name for name, curve in others.items() if mostly(curves["random"], curve)]
    return StrategyOrder(faster, slower, True, complete)
