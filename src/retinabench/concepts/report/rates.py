"""Sensitivity and specificity on new samples: the intervals by which the page judges a model.

Two intervals are kept apart. That of the bank (`companion.py`) closes to a point when every question was asked. That of new
samples (Jeffreys, no finite-population correction) stays as wide as the number of samples makes it, and is the one by which
a model is judged: an auditor asks about the next patients, not about these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from markupsafe import Markup
from scipy import stats

from retinabench.metrics.inference.auroc_variance import AurocError, auroc_error
from retinabench.reports.evaluation.figures import NHS
from retinabench.reports.toolkit.number_format import percent

GOALS = {"sensitivity": NHS[1], "specificity": 1 - NHS[0]}
"""The yardstick of every concept, unless a claim states another: the NHS standard for screening."""

SIDES = {
    "sensitivity": ("tp", "fn", "positives", "with"),
    "specificity": ("tn", "fp", "negatives", "without"),
}
"""Measure -> its right and its wrong answers, the name of its samples in the bank, and how these are spoken of."""


@dataclass(frozen=True)
class Rate:
    """Sensitivity or specificity of a concept: right answers of asked, and samples of that kind in the bank."""

    concept: str
    measure: str
    right: int
    asked: int
    of: int

    @property
    def goal(self) -> float:
        """The yardstick of this measure."""
        return GOALS[self.measure]

    @property
    def value(self) -> float:
        """Share of right answers among those given; NaN where none was."""
        return self.right / self.asked if self.asked else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the rate on new images like these."""
        return jeffreys(self.right, self.asked)

    @property
    def standing(self) -> str:
        """`met` or `missed` where the interval lies on one side of the goal, else `open`."""
        low, high = self.interval
        return "met" if low >= self.goal else "missed" if high < self.goal else "open"

    def told(self) -> Markup:
        """Return `29 % [8 %, 64 %]`."""
        low, high = self.interval
        return Markup('<span class="whole">{} [{}, {}]</span>').format(
            percent(self.value), percent(low), percent(high)
        )


def jeffreys(right: int, asked: int, level: float = 0.95) -> tuple[float, float]:
    """Jeffreys' equal-tailed interval of a proportion: quantiles of Beta(k + 1/2, n - k + 1/2); 0 and 1 at the ends.

    Source: Brown, Cai and DasGupta, Statist. Sci. 16:101 (2001).
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


def rates(found: Mapping[str, Any]) -> list[tuple[Rate, Rate]]:
    """Return sensitivity and specificity of every concept."""
    pairs = []
    for concept, one in found["concepts"].items():
        made = []
        for measure, (right, wrong, samples, _) in SIDES.items():
            k, n = one["counts"][right], one["counts"][right] + one["counts"][wrong]
            made.append(Rate(concept, measure, k, n, found["bank"][samples][concept]))
        pairs.append((made[0], made[1]))
    return pairs


def recognition(sensitivity: Rate, specificity: Rate) -> str:
    """Return `recognised`, `reversed` or `open`: whether yes is said more often where the concept is, in new samples too.

    Guessing, in whatever proportion of yes and no, has sensitivity + specificity = 1. `recognised`: the lower ends of both
    intervals add up to more; `reversed`: the upper ends to less. Each interval errs in 5 %, both in at most 10 %.
    """
    low = sensitivity.interval[0] + specificity.interval[0]
    high = sensitivity.interval[1] + specificity.interval[1]
    return "recognised" if low > 1 else "reversed" if high < 1 else "open"


def ranking(one: Mapping[str, Any]) -> AurocError | None:
    """Return the AUROC of the answers about a concept, from their bins; None where either truth was not asked.

    Sensitivity and specificity cut P(yes) at one half; the AUROC asks whether any cut would do.
    """
    places = np.repeat(np.arange(100), np.asarray(one["bins"], np.int64))
    if len(np.unique(places // 50)) < 2:
        return None
    return auroc_error(places // 50, places % 50)


def ranks_rightly(one: Mapping[str, Any]) -> bool:
    """Whether the answers rank samples with the concept above those without: Mann and Whitney's test, 2.5 % one-sided.

    Not by the interval of the AUROC, which closes to a point where two samples happen to stand above two others.
    """
    places = np.repeat(np.arange(100), np.asarray(one["bins"], np.int64))
    without, having = places[places < 50], places[places >= 50] - 50
    if not len(without) or not len(having) or (places % 50 == places[0] % 50).all():
        return False
    # The normal approximation needs samples; the exact distribution is that without ties, which make it cautious.
    method: Literal["exact", "asymptotic"] = "exact" if len(having) * len(without) <= 1000 else "asymptotic"
    return bool(stats.mannwhitneyu(having, without, alternative="greater", method=method).pvalue < 0.025)
