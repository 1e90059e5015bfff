"""The facts of a verdict, which `templates/evaluation.html.j2` puts into sentences; `findings.py` finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from retinabench.reports.evaluation.verdict.worth import Worth
from retinabench.reports.toolkit.number_format import Quantity

Overall = Literal["better", "worse", "partly worse", "partly better", "unclear"]


@dataclass(frozen=True)
class SetOutcome:
    """On one set: for how many of `methods` referral by uncertainty is better or worse than random referral."""

    set: str
    better: int
    worse: int
    methods: int

    @property
    def counts(self) -> tuple[int, int, int]:
        """The numbers without the set."""
        return self.better, self.worse, self.methods


@dataclass(frozen=True)
class ScarceSet:
    """A set with too few errors or patients for intervals to be reliable, by the leading method."""

    set: str
    errors: int
    images: int
    patients: int


@dataclass(frozen=True)
class ShiftChange:
    """The change of a score of the leading method under shift: "auroc", or "accuracy" where that is undefined."""

    score: str
    change: Quantity


@dataclass(frozen=True)
class MissedImages:
    """Referable images that the leading method calls not referable and retains when half are referred.

    Attributes:
        set: The set, the shifted one where there is one.
        positives: Number of referable images.
        share: The missed share of them.
        prevalence: Share of referable images in the set.
        retained: Share of referable images in the retained half.
    """

    set: str
    positives: int
    share: Quantity
    prevalence: float
    retained: Quantity


@dataclass(frozen=True)
class MethodOrder:
    """How the leading method compares with the others, by paired intervals on one set.

    Attributes:
        set: The last set.
        ahead: Names of the methods that it is ahead of.
        level: Names of the methods that it cannot be told from.
        others: Number of other methods.
        nearest: Of `ahead`, the one with the smallest gap; "" where there is none.
        gap: That gap.
    """

    set: str
    ahead: Sequence[str]
    level: Sequence[str]
    others: int
    nearest: str
    gap: Quantity


@dataclass(frozen=True)
class ScreeningStandard:
    """Which methods meet the NHS standard on a set at their decision thresholds: by both bounds, or by the estimates alone.

    A threshold that was chosen on the same images meets nothing.

    Attributes:
        set: The set.
        sure: Names of the methods that meet it by the lower bounds.
        estimated: Names of the others that meet it by the estimates.
        chosen_here: Whether some threshold was chosen on these images.
        best: The method with the largest sensitivity at a specificity of 0.80, by a threshold chosen on these images.
        reachable: That sensitivity.
    """

    set: str
    sure: Sequence[str]
    estimated: Sequence[str]
    chosen_here: bool
    best: str
    reachable: Quantity


@dataclass(frozen=True)
class Dip:
    """Where the accuracy of the leading method lies below random referral on a set.

    Attributes:
        set: The set.
        low: Smallest share referred at which it does.
        high: Largest share referred at which it does.
        sure: Whether the upper end of the 95 % band lies below as well, somewhere.
        lowest: The lowest accuracy there.
    """

    set: str
    low: float
    high: float
    sure: bool
    lowest: float


@dataclass(frozen=True)
class Retained:
    """What referral does to the composition of a set, by the leading method: before, and among the retained images."""

    set: str
    prevalence: float
    retained_prevalence: Quantity
    sensitivity: Quantity
    retained_sensitivity: Quantity
    specificity: Quantity
    retained_specificity: Quantity
    accuracy: Quantity

    @property
    def change(self) -> int:
        """1 or -1 where the share of referable images rises or falls, 0 where this is not shown."""
        return self.retained_prevalence.sign(self.prevalence)

    @property
    def below_baseline(self) -> bool:
        """Whether the accuracy after referral lies below always giving the retained images the answer of their larger class."""
        share = self.retained_prevalence.value
        return self.accuracy.defined and self.accuracy.value < max(share, 1 - share)


@dataclass(frozen=True)
class Verdict:
    """Everything that the head of the page states; None or an empty list leaves a paragraph out.

    Attributes:
        worth: What the leading method is worth against the baseline, by set.
        useful: Set -> number of methods that are useful there, and of methods.
        overall: Whether referral by uncertainty beats random referral, over all methods and sets.
        outcomes: The same by set.
        gains: Sets on which the leading method gains, and its share of the possible gain is known.
        scarce: Sets with too few errors or patients.
        shift: The change under shift.
        referral: Sets whose gain from referral is known, the shifted one first.
        dips: Sets on which the curve of the leading method falls below random referral.
        retained: What is retained, by set.
        missed: Referable images that are missed.
        order: How the methods compare.
        screening: The screening standard by set.
        detection: AUROC of the uncertainty of shifted against in-domain images.
    """

    worth: Sequence[Worth]
    useful: Mapping[str, tuple[int, int]]
    overall: Overall
    outcomes: Sequence[SetOutcome]
    gains: Sequence[str]
    scarce: Sequence[ScarceSet]
    shift: ShiftChange | None
    referral: Sequence[str]
    dips: Sequence[Dip]
    retained: Mapping[str, Retained]
    missed: MissedImages | None
    order: MethodOrder | None
    screening: Sequence[ScreeningStandard]
    detection: Quantity | None
