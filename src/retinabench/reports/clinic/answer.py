"""What the clinic's page states: the facts that `templates/say.html.j2` puts into sentences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from markupsafe import Markup

from retinabench.metrics.clinical.operating_points import GoalVerdict
from retinabench.metrics.clinical.screening_report import ScreeningReport
from retinabench.metrics.clinical.set_screening import SetScreening
from retinabench.metrics.clinical.subgroups import RATES, Subgroup
from retinabench.metrics.image_sets import SET_LABELS
from retinabench.metrics.proportions import Interval
from retinabench.reports.toolkit.number_format import PERCENT, TWO_DIGITS, Quantity

Kind = Literal[
    "one class",
    "inverted",
    "never",
    "blind",
    "no referral",
    "nothing missed",
    "worse",
    "unclear",
    "partly",
    "yes",
]
"""Whether uncertainty can drive referral on a set, from no to yes."""


@dataclass(frozen=True)
class SetAnswer:
    """The answer on one set.

    Attributes:
        name: Key of the set.
        label: What it is called.
        kind: Whether uncertainty can drive referral.
        one: Its numbers.
        positives: Number of referable images.
        missed_alone: Referable images that the model alone misses.
        severe: Number of images of grade 3 and 4; None without grades.
        nhs: What the pathway says of the NHS goal, at its thresholds.
        failing: Groups whose sensitivity, specificity or AUROC is shown to be below that of the other images, with the rate.
        worst: The group of the lowest sensitivity that is not too small.
        small: Number of groups of whose sensitivity nothing can be said.
        useful: First and last threshold probability at which the model's net benefit is shown to be above treating all and
            treating none; None where there is none.
        share: Writes a share in percent with its interval.
        rate: Writes a number with its interval.
    """

    name: str
    label: str
    kind: Kind
    one: SetScreening
    positives: int
    missed_alone: int
    severe: int | None
    nhs: GoalVerdict
    failing: Sequence[tuple[Subgroup, str]]
    worst: Subgroup | None
    small: int
    useful: tuple[float, float] | None

    share: Callable[[Interval], Markup]
    rate: Callable[[Interval], Markup]

    @property
    def caught(self) -> int:
        """Of the images that the model alone misses, the number that is referred."""
        return self.missed_alone - len(self.one.missed.images)


def answer_sets(report: ScreeningReport) -> list[SetAnswer]:
    """Return the answer of every set, the in-domain one first."""
    return [_answer(name, one, report) for name, one in report.sets.items()]


def _answer(name: str, one: SetScreening, report: ScreeningReport) -> SetAnswer:
    table, groups = one.images.table, one.subgroups
    nhs = next(verdict for verdict in one.pathway.verdicts if verdict.goal == "nhs")
    failing = [(group, rate) for rate in RATES for group in (groups.failing(rate) if groups else [])]
    severe = None if one.missed.severe is None else one.missed.severe_total
    return SetAnswer(
        name, SET_LABELS[name], _kind(one, report, nhs), one, table.tp + table.fn, table.fn, severe, nhs, failing,
        groups.worst("sensitivity") if groups else None,
        sum(bool(group.rates["sensitivity"].too_small) for group in groups.groups) if groups else 0,
        _useful(one), share, rate,
    )  # fmt: skip


def _kind(one: SetScreening, report: ScreeningReport, nhs: GoalVerdict) -> Kind:
    table, rate = one.images.table, one.workload.images.value
    if not (table.tp + table.fn and table.tn + table.fp):
        return "one class"
    if one.auroc.high < 0.5:
        return "inverted"
    if table.tp + table.fp == 0:
        return "never"
    if not one.auroc.low > 0.5 and not one.auroc.value > 0.99:
        return "blind"
    if one.referred == 0:
        return "no referral"
    caught = one.missed.caught
    if table.fn == 0:
        return "nothing missed"
    if caught.high < rate:
        return "worse"
    if not caught.low > rate:
        return "unclear"
    return "yes" if nhs.bound_met and not report.threshold.same_images else "partly"


def _useful(one: SetScreening) -> tuple[float, float] | None:
    """The longest run of threshold probabilities at which the model beats treating all and treating none."""
    curve = one.decision_curve
    if curve.low is None or curve.over_all_low is None:
        return None
    better = (curve.low > 0) & (curve.over_all_low > 0)
    runs = np.split(np.arange(len(better)), np.flatnonzero(np.diff(better)) + 1)
    longest = max((run for run in runs if better[run[0]]), key=len, default=None)
    if longest is None:
        return None
    return float(curve.threshold[longest[0]]), float(curve.threshold[longest[-1]])


def share(one: Interval) -> Markup:
    """Return a share in percent with its interval."""
    return Quantity(one.value, one.low, one.high).whole_html(PERCENT)


def rate(one: Interval) -> Markup:
    """Return a number with its interval."""
    return Quantity(one.value, one.low, one.high).whole_html(TWO_DIGITS)
