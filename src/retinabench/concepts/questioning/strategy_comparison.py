"""Comparison of strategies: mean uncertainty against the number of questions, repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees import Examinee
from retinabench.concepts.inference.unpredictability import Reading
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.questioning.strategies import STRATEGIES
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.random_streams import derive
from retinabench.core.results import Document

Floats = NDArray[np.float64]
SHARES = (0.5, 0.8, 0.9, 0.95)  # of the largest fall of the uncertainty
COMPARED = tuple(name for name in STRATEGIES if name != "claims")


@dataclass(frozen=True)
class QuestionsTo:
    """Questions until the mean uncertainty reached a level."""

    value: float | None
    low: float | None
    high: float | None
    reached: int


@dataclass(frozen=True)
class StrategyCourse:
    """Mean uncertainty of one strategy after 0, 1, … questions with the 95 % interval of the mean (Student's t)."""

    mean: list[float]
    low: list[float]
    high: list[float]
    questions_to: dict[str, QuestionsTo]


@dataclass(frozen=True)
class StrategyComparison(Document):
    """The strategies on one bank."""

    questions: list[int]
    repetitions: int
    reading: Reading
    rules: Literal["corrected", "published"]
    strategies: dict[str, StrategyCourse]


def compare_strategies(
    bank: Bank,
    examinee_factory: Callable[[int], Examinee],
    strategies: Sequence[str] = COMPARED,
    repetitions: int = 10,
    questions: int | None = None,
    seed: int = 0,
    *,
    reading: Reading = "std",
    rules: Literal["corrected", "published"] = "corrected",
    progress: Progress = QUIET,
) -> StrategyComparison:
    """Examine with every strategy, several times each, and count the questions to certain levels of the mean uncertainty.

    The levels are 50, 80, 90 and 95 % of the way from its start to the lowest value that a strategy always reached.

    References:
        Fountoukidou and Sznitman (2019), Figure 4.
    """
    if repetitions < 2:
        raise InputError(f"{repetitions} repetitions give no interval", hint="At least 2; published were 10.")
    total = int(bank.cells.sum())
    questions = total if questions is None else min(questions, total)
    seeds = [derive(seed, "repetition", repetition) for repetition in range(repetitions)]
    courses: dict[str, Floats] = {}
    with progress.track("Comparing strategies", len(strategies) * repetitions, unit="runs") as advance:
        for name in strategies:
            rows = []
            for own in seeds:
                rows.append(
                    examine(
                        bank, examinee_factory(own), strategy=name, questions=questions, seed=own, reading=reading,
                        rules=rules,
                    ).uncertainty
                )  # fmt: skip
                advance(1)
            courses[name] = np.stack(rows)
    start = next(iter(courses.values()))[0, 0]
    reached = min(float(course[:, -1].max()) for course in courses.values())
    levels = [float(start - share * (start - reached)) for share in SHARES]
    summaries = {name: _summary(course, levels) for name, course in courses.items()}
    return StrategyComparison(list(range(questions + 1)), repetitions, reading, rules, summaries)


def questions_to(course: Floats, level: float) -> Floats:
    """(repetitions,) questions until the mean uncertainty is at most `level`, NaN where it never is; course (r, q + 1)."""
    below = course <= level + 1e-12
    return np.where(below.any(axis=1), below.argmax(axis=1), np.nan)


def mean_interval(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean over the first axis with Student's 95 % interval: (mean, low, high)."""
    n = len(values)
    mean = values.mean(axis=0)
    half = stats.t.ppf(0.975, n - 1) * values.std(axis=0, ddof=1) / np.sqrt(n)
    return mean, mean - half, mean + half


def _summary(course: Floats, levels: Sequence[float]) -> StrategyCourse:
    mean, low, high = (values.tolist() for values in mean_interval(course))
    return StrategyCourse(mean, low, high, {f"{level:.4f}": _questions_to(course, level) for level in levels})


def _questions_to(course: Floats, level: float) -> QuestionsTo:
    counts = questions_to(course, level)
    reached = int(np.isfinite(counts).sum())
    if reached < len(counts):
        return QuestionsTo(None, None, None, reached)
    value, low, high = (float(one) for one in mean_interval(counts))
    return QuestionsTo(value, low, high, reached)
