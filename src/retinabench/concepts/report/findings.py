"""What an examination shows about the model and about the samples: the facts that the page puts into sentences.

Two intervals are kept apart. The interval for the bank (`inference/beta_binomial.py`) closes to a point when every question
was asked. The interval for new samples (Jeffreys, no finite-population correction) stays as wide as the number of samples
makes it. A model is judged by the second: an audit is about the next patients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.metrics.clinical.operating_points import operating_points
from retinabench.metrics.inference.auroc_variance import AurocError, auroc_error
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
        goal: The user's goal of this measure; None where there is none, and nothing is judged.
    """

    concept: str
    measure: str
    right: int
    asked: int
    of: int
    goal: float | None = None

    @property
    def kind(self) -> str:
        """How samples of that kind are spoken of: "with" or "without" the concept."""
        return "with" if self.measure == "sensitivity" else "without"

    @property
    def value(self) -> float:
        """Share of right answers among those given; NaN where none was."""
        return self.right / self.asked if self.asked else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the rate for new samples."""
        return jeffreys(self.right, self.asked)

    @property
    def quantity(self) -> Quantity:
        """The rate with its interval."""
        return Quantity(self.value, *self.interval)

    @property
    def standing(self) -> str:
        """`met` or `missed` where the interval lies on one side of the goal, else `open`; `no goal` without one."""
        if self.goal is None:
            return "no goal"
        low, high = self.interval
        return "met" if low >= self.goal else "missed" if high < self.goal else "open"


@dataclass(frozen=True)
class Recognition:
    """The concepts by what their answers show: see `recognition`; `unknown` where a kind of sample was not asked."""

    recognised: Sequence[str]
    open: Sequence[str]
    reversed: Sequence[str]
    unknown: Sequence[str]


@dataclass(frozen=True)
class CutOff:
    """A threshold on P(yes) that serves a concept better than one half, chosen on the very answers it is stated for.

    Attributes:
        concept: The concept.
        auroc: AUROC of the answers.
        threshold: Yes is P(yes) of this or more; the largest sum of sensitivity and specificity.
        sensitivity: With this threshold.
        specificity: With this threshold.
    """

    concept: str
    auroc: float
    threshold: float
    sensitivity: float
    specificity: float


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
        """How samples of that kind are spoken of."""
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


def jeffreys(right: int, asked: int, level: float = 0.95) -> tuple[float, float]:
    """Return Jeffreys' equal-tailed interval of a proportion: quantiles of Beta(k + 1/2, n - k + 1/2); 0 and 1 at the ends.

    Args:
        right: Number of successes k.
        asked: Number of trials n.
        level: Coverage.

    Returns:
        The ends of the interval.

    References:
        Brown, Cai and DasGupta, Statistical Science 16:101 (2001).
    """
    tail, a, b = (1 - level) / 2, right + 0.5, asked - right + 0.5
    low = 0.0 if right == 0 else float(stats.beta.ppf(tail, a, b))
    high = 1.0 if right == asked else float(stats.beta.ppf(1 - tail, a, b))
    return low, high


def needed(goal: float) -> int:
    """Return how many samples it takes at least until answers that are all right show a rate of `goal`."""
    count = 1
    while jeffreys(count, count)[0] < goal:
        count += 1
    return count


def rates(found: Mapping[str, Any]) -> list[tuple[ConceptRate, ConceptRate]]:
    """Return sensitivity and specificity of every concept of an examination (`Examination.to_dict()`)."""
    pairs = []
    for concept, one in found["concepts"].items():
        made = []
        for measure, (right, wrong, samples) in OUTCOMES.items():
            k, n = one["counts"][right], one["counts"][right] + one["counts"][wrong]
            goal = found.get("goals", {}).get(measure)
            made.append(ConceptRate(concept, measure, k, n, found["bank"][samples][concept], goal))
        pairs.append((made[0], made[1]))
    return pairs


def recognition(sensitivity: ConceptRate, specificity: ConceptRate) -> str:
    """Return `recognised`, `reversed` or `open`: whether yes is said more often where the concept is, in new samples too.

    Guessing, in whatever proportion of yes and no, has sensitivity + specificity = 1. `recognised`: the lower ends of both
    intervals add up to more; `reversed`: the upper ends to less. Each interval errs in 5 %, both in at most 10 %.
    """
    low = sensitivity.interval[0] + specificity.interval[0]
    high = sensitivity.interval[1] + specificity.interval[1]
    return "recognised" if low > 1 else "reversed" if high < 1 else "open"


def ranking(one: Mapping[str, Any]) -> AurocError | None:
    """Return the AUROC of the answers about a concept; None where either truth was not asked.

    Sensitivity and specificity cut P(yes) at one half; the AUROC asks whether any cut would do.
    """
    without, having = _answers(one)
    if not len(without) or not len(having):
        return None
    return auroc_error(np.repeat([0, 1], [len(without), len(having)]), np.concatenate([without, having]))


def ranks_better_than_chance(one: Mapping[str, Any]) -> bool:
    """Whether the answers rank samples with the concept above those without: Mann and Whitney's test, 2.5 % one-sided.

    The interval of the AUROC does not serve here: it closes to a point where two samples happen to rank above two others.
    """
    without, having = _answers(one)
    if not len(without) or not len(having) or np.ptp(np.concatenate([without, having])) == 0:
        return False
    # The normal approximation needs samples; the exact distribution is that without ties, which make it cautious.
    method: Literal["exact", "asymptotic"] = "exact" if len(having) * len(without) <= 1000 else "asymptotic"
    return bool(stats.mannwhitneyu(having, without, alternative="greater", method=method).pvalue < 0.025)


def _answers(one: Mapping[str, Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The answers about samples without the concept and about those with it."""
    without, having = (np.asarray(one["answers"][kind], np.float64) for kind in ("without", "with"))
    return without, having


def cut_offs(found: Mapping[str, Any]) -> list[CutOff]:
    """Return better thresholds for the concepts that one half does not serve although the answers rank them.

    These are the concepts whose answers rank samples better than by chance, and which are not recognised at one half or
    miss a goal there.
    """
    better = []
    missed = {one.rate.concept for one in missed_goals(found)}
    for pair in rates(found):
        concept = pair[0].concept
        one, served = found["concepts"][concept], recognition(*pair) == "recognised"
        order = ranking(one)
        if order is None or (served and concept not in missed) or not ranks_better_than_chance(one):
            continue
        without, having = _answers(one)
        label = np.repeat([0, 1], [len(without), len(having)])
        threshold, sensitivity, specificity = operating_points(label, np.concatenate([without, having]))
        best = 1 + int(np.argmax(sensitivity[1:] + specificity[1:]))
        values = float(threshold[best]), float(sensitivity[best]), float(specificity[best])
        better.append(CutOff(concept, order.auroc, *values))
    return better


def recognised(found: Mapping[str, Any]) -> Recognition:
    """Return the concepts by what their answers show."""
    names: dict[str, list[str]] = {"recognised": [], "open": [], "reversed": [], "unknown": []}
    for pair in rates(found):
        seen = all(rate.asked for rate in pair)
        names[recognition(*pair) if seen else "unknown"].append(pair[0].concept)
    return Recognition(**names)


def missed_goals(found: Mapping[str, Any]) -> list[MissedGoal]:
    """Return the rates that are shown to be below their goals."""
    missed = []
    for pair in rates(found):
        counts = found["concepts"][pair[0].concept]["counts"]
        said = {"yes": counts["tp"] + counts["fp"], "no": counts["tn"] + counts["fn"]}
        given = [answer for answer, count in said.items() if count]
        for rate in pair:
            if rate.standing == "missed":
                missed.append(MissedGoal(rate, given[0] if len(given) == 1 else ""))
    return missed


def met_goals(found: Mapping[str, Any]) -> list[str]:
    """Return the concepts whose rates are all shown to reach their goals; none where there is no goal."""
    judged = {
        pair[0].concept: [rate.standing for rate in pair if rate.goal is not None] for pair in rates(found)
    }
    return [concept for concept, standings in judged.items() if standings and set(standings) == {"met"}]


def scarce_samples(found: Mapping[str, Any]) -> list[ScarceSamples]:
    """Return the kinds of samples of which there are too few, whatever the model."""
    scarce = []
    for side, measure in enumerate(OUTCOMES):
        goal = found.get("goals", {}).get(measure)
        if goal is None:
            continue
        least = needed(goal)
        few = [pair[side] for pair in rates(found) if pair[side].of < least]
        if few:
            scarce.append(ScarceSamples(measure, goal, least, few))
    return scarce


def entangled(found: Mapping[str, Any]) -> list[Entangled]:
    """Return the groups of concepts that nearly always occur together (`overlap.together`), pairs joined into groups."""
    groups: list[tuple[set[str], int]] = []
    for pair in found["bank"].get("together", ()):
        joined, most = set(pair["concepts"]), pair["one"]
        for group in [group for group in groups if group[0] & joined]:
            groups.remove(group)
            joined, most = joined | group[0], max(most, group[1])
        groups.append((joined, most))
    names = found["bank"]["concepts"]
    return [Entangled([name for name in names if name in joined], most) for joined, most in groups]


def left_open(found: Mapping[str, Any]) -> list[ConceptRate]:
    """Return the rates that are still open although the bank has enough samples left to settle them.

    Without a goal these are all rates with questions left.
    """
    return [
        rate
        for pair in rates(found)
        for rate in pair
        if rate.asked < rate.of
        and (rate.goal is None or (rate.standing == "open" and rate.of >= needed(rate.goal)))
    ]


def strategy_order(found: Mapping[str, Any], comparison: Mapping[str, Any]) -> StrategyOrder:
    """Compare every strategy of `compare_strategies` with random questions, by their 95 % intervals."""
    bank, curves, questions = found["bank"], comparison["strategies"], comparison["questions"]
    complete = questions[-1] == sum(bank["positives"].values()) + sum(bank["negatives"].values())
    if "random" not in curves:
        return StrategyOrder([], [], False, complete)
    middle = slice(len(questions) // 10, 1 + len(questions) // 2)

    def mostly(below: Mapping[str, Any], above: Mapping[str, Any]) -> bool:
        high, low = (np.asarray(one)[middle] for one in (below["high"], above["low"]))
        return bool(np.mean(high < low) > 0.5)

    others = {name: curve for name, curve in curves.items() if name != "random"}
    faster = [name for name, curve in others.items() if mostly(curve, curves["random"])]
    slower = [name for name, curve in others.items() if mostly(curves["random"], curve)]
    return StrategyOrder(faster, slower, True, complete)
