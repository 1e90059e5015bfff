"""Do the strategies differ? The mean uncertainty against the number of questions, repeated: Figure 4 of the publication."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees.examinees import Examinee
from retinabench.concepts.inference.gaussian_process import Reading
from retinabench.concepts.questioning.loop import examine
from retinabench.concepts.questioning.strategies import STRATEGIES
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.random_streams import derive

Floats = NDArray[np.float64]
SHARES = (0.5, 0.8, 0.9, 0.95)  # of the largest fall of the uncertainty
COMPARED = tuple(name for name in STRATEGIES if name != "claims")


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
) -> dict[str, Any]:
    """Examine with every strategy, `repetitions` times each, up to so many questions (None: all).

    examinee_factory: from a seed per repetition, shared by the strategies, to an examinee; for a table, the same each time.
    Returns {"questions": [0 … q], "repetitions", "reading", "rules", "strategies": {name: {"mean": [q + 1], "low", "high",
    "questions_to": {level: {"value", "low", "high", "reached"}}}}}: means over the repetitions with 95 % intervals of the mean
    (Student's t). Levels of the mean uncertainty are 50, 80, 90 and 95 % of the way from the beginning to the lowest one that
    some strategy reached in every repetition; `value` is None where some repetition did not reach the level.
    """
    if repetitions < 2:
        raise InputError(f"{repetitions} repetitions give no interval", hint="At least 2; published were 10.")
    total = int(bank.cells.sum())
    questions = total if questions is None else min(questions, total)
    courses: dict[str, Floats] = {}
    with progress.track("Comparing strategies", len(strategies) * repetitions, unit="runs") as advance:
        for name in strategies:
            rows = []
            for repetition in range(repetitions):
                one = derive(seed, "repetition", repetition)
                found = examine(
                    bank,
                    examinee_factory(one),
                    strategy=name,
                    questions=questions,
                    seed=one,
                    reading=reading,
                    rules=rules,
                )
                rows.append(found.uncertainty)
                advance(1)
            courses[name] = np.stack(rows)
    start = next(iter(courses.values()))[0, 0]
    reached = min(float(course[:, -1].max()) for course in courses.values())
    levels = [float(start - share * (start - reached)) for share in SHARES]
    return {
        "questions": list(range(questions + 1)),
        "repetitions": repetitions,
        "reading": reading,
        "rules": rules,
        "strategies": {name: _summary(course, levels) for name, course in courses.items()},
    }


def questions_to(course: Floats, level: float) -> Floats:
    """(repetitions,) questions until the mean uncertainty is at most `level`, NaN where it never is; course (r, q + 1)."""
    below = course <= level + 1e-12
    return np.where(below.any(axis=1), below.argmax(axis=1), np.nan)


def mean_interval(values: Floats, level: float = 0.95) -> tuple[Floats, Floats, Floats]:
    """Mean over the first axis with Student's interval: (mean, low, high)."""
    n = len(values)
    mean = values.mean(axis=0)
    half = stats.t.ppf((1 + level) / 2, n - 1) * values.std(axis=0, ddof=1) / np.sqrt(n)
    return mean, mean - half, mean + half


def _summary(course: Floats, levels: Sequence[float]) -> dict[str, Any]:
    mean, low, high = (values.tolist() for values in mean_interval(course))
    reach: dict[str, dict[str, Any]] = {}
    for level in levels:
        counts = questions_to(course, level)
        hits = int(np.isfinite(counts).sum())
        ends = [float(v) for v in mean_interval(counts)] if hits == len(counts) else [None] * 3
        reach[f"{level:.4f}"] = dict(zip(("value", "low", "high"), ends, strict=True)) | {"reached": hits}
    return {"mean": mean, "low": low, "high": high, "questions_to": reach}
