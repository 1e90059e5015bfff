"""What an examination says in words: what the model lacks, what the data lack, what was not asked.

Two intervals are kept apart. That of the bank (the companion's) closes to a point when every question was asked. That of
images like these (Jeffreys, no finite-population correction) stays as wide as the number of images makes it, and is the
one by which a model is judged: an auditor asks about the next patients, not about these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from scipy import stats

from retinabench.report.figures import NHS
from retinabench.report.marking import percent
from retinabench.report.style import sentence_list
from retinabench.report.findings import Finding

GOALS = {"sensitivity": NHS[1], "specificity": 1 - NHS[0]}
"""The yardstick of every concept, unless a claim states another: the NHS standard for screening."""

SIDES = {"sensitivity": ("tp", "fn", "positives", "with"), "specificity": ("tn", "fp", "negatives", "without")}
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


def rates(found: dict[str, Any]) -> list[tuple[Rate, Rate]]:
    """Return sensitivity and specificity of every concept."""
    pairs = []
    for concept, one in found["concepts"].items():
        made = []
        for measure, (right, wrong, samples, _) in SIDES.items():
            k, n = one["counts"][right], one["counts"][right] + one["counts"][wrong]
            made.append(Rate(concept, measure, k, n, found["bank"][samples][concept]))
        pairs.append((made[0], made[1]))
    return pairs


def grasp(sensitivity: Rate, specificity: Rate) -> str:
    """Return `grasped`, `reversed` or `open`: whether yes is said more often where the concept is, in new images too.

    Guessing, in whatever proportion of yes and no, has sensitivity + specificity = 1. `grasped`: the lower ends of both
    intervals add up to more; `reversed`: the upper ends to less. Each interval errs in 5 %, both in at most 10 %.
    """
    low = sensitivity.interval[0] + specificity.interval[0]
    high = sensitivity.interval[1] + specificity.interval[1]
    return "grasped" if low > 1 else "reversed" if high < 1 else "open"


def answer(found: dict[str, Any]) -> Markup:
    """Return the headline: which concepts the model grasps."""
    said: dict[str, list[str]] = {"grasped": [], "reversed": [], "open": []}
    for pair in rates(found):
        said[grasp(*pair)].append(pair[0].concept)
    parts = []
    if said["grasped"]:
        parts.append(Markup("The model tells {} from their absence.").format(sentence_list(said["grasped"])))
    if said["open"]:
        parts.append(
            Markup("Nothing better than guessing is shown for {}.").format(sentence_list(said["open"]))
        )
    if said["reversed"]:
        parts.append(
            Markup("It answers the wrong way round for {}.").format(sentence_list(said["reversed"]))
        )
    return Markup(" ").join(parts)


def model_findings(found: dict[str, Any]) -> list[Finding]:
    """Return what the answers show about the model: what it misses, and what it does well enough."""
    findings = []
    for pair in rates(found):
        for rate in pair:
            if rate.asked and rate.standing == "missed":
                kind = SIDES[rate.measure][3]
                text = Markup("asked about {} samples {} it, it was right about {}: {} of {}, below {}.").format(
                    rate.asked, kind, rate.right, rate.measure, rate.told(), percent(rate.goal)
                )
                findings.append(Finding(_title(rate.concept), text, "bad"))
        one = found["concepts"][pair[0].concept]["counts"]
        yes, no = one["tp"] + one["fp"], one["tn"] + one["fn"]
        if min(rate.asked for rate in pair) and 0 in (yes, no):
            word = "no" if yes == 0 else "yes"
            text = Markup("every answer was {}, whatever the image showed.").format(word)
            findings.append(Finding(_title(pair[0].concept), text, "bad"))
    met = [pair for pair in rates(found) if all(rate.standing == "met" for rate in pair)]
    if met:
        text = Markup("sensitivity of at least {} and specificity of at least {} are shown for {}.").format(
            percent(GOALS["sensitivity"]),
            percent(GOALS["specificity"]),
            sentence_list([p[0].concept for p in met]),
        )
        findings.append(Finding("Good enough for screening:", text, "good"))
    if not findings:
        text = Markup("no failure and no adequacy is shown: every interval reaches over its goal.")
        findings.append(Finding("Nothing is settled:", text))
    return findings


def data_findings(found: dict[str, Any]) -> list[Finding]:
    """Return what no questioning could show with these images, whatever the model: too few of a kind."""
    findings = []
    for pair in rates(found):
        for rate in pair:
            least = needed(rate.goal)
            if rate.of < least:
                text = Markup(
                    "{} of {} samples are {} it. Even if every answer were right, a {} of {} could not be shown for new samples: that takes at least {}."
                ).format(
                    rate.of,
                    found["bank"]["samples"],
                    SIDES[rate.measure][3],
                    rate.measure,
                    percent(rate.goal),
                    least,
                )
                findings.append(Finding(_title(rate.concept), text, "bad"))
    if not findings:
        text = Markup("every concept has enough samples with it and without it to show a good model to be good.")
        findings.append(Finding("Nothing is too rare:", text, "good"))
    return findings


def open_findings(found: dict[str, Any]) -> list[Finding]:
    """Return what the questions left open although the bank could still answer it."""
    left = [
        rate
        for pair in rates(found)
        for rate in pair
        if rate.asked < rate.of and rate.standing == "open" and rate.of >= needed(rate.goal)
    ]
    asked = found["asked"]
    everything = sum(rate.of for pair in rates(found) for rate in pair)
    if asked >= everything:
        return [Finding("Everything was asked:", Markup("no question of this bank is left."))]
    findings = []
    for rate in left:
        text = Markup("{} of {} samples {} it were asked; {} is {} so far.").format(
            rate.asked, rate.of, SIDES[rate.measure][3], rate.measure, rate.told() if rate.asked else "unknown"
        )
        findings.append(Finding(_title(rate.concept), text))
    if not findings:
        text = Markup("more questions to this bank would settle nothing that they have left open.")
        findings.append(Finding("Enough was asked:", text))
    return findings


def claim_verdict(claim: dict[str, Any]) -> Markup:
    """Return what the questions say about a stated claim."""
    confidence = percent(claim["confidence"])
    if claim["decided"] == "undecided":
        return Markup("Undecided after {} of {} questions about it: neither the claim nor its opposite is shown.").format(
            claim["asked"], claim["of"]
        )
    after = "before the first question" if not claim["after"] else f"at question {claim['after']}"
    word = "Holds" if claim["decided"] == "holds" else "Does not hold"
    return Markup("{}, decided {} at a confidence of {}.").format(word, after, confidence)


def _title(concept: str) -> str:
    return f"{concept}:"

