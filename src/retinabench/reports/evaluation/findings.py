"""The verdict of an evaluation: the facts that `templates/evaluation.html.j2` puts into sentences.

A difference is stated ("is better", "falls", "raises") only where its 95 % interval excludes 0; otherwise the page says that
these images cannot tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from retinabench.metrics.clinical.operating_points import GOALS
from retinabench.reports.evaluation.evaluation import Evaluation
from retinabench.reports.evaluation.tables import NHS_SCORE
from retinabench.reports.toolkit.number_format import Quantity

FEW_ERRORS = 10
FEW_PATIENTS = 30
SLIGHT = 0.6
"""An AUROC of shifted against in-domain images below this is called slight."""

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
    """Which methods meet the NHS standard on a set: with the whole interval, or by the estimate alone."""

    set: str
    sure: Sequence[str]
    estimated: Sequence[str]
    best: str
    sensitivity: Quantity


@dataclass(frozen=True)
class Verdict:
    """Everything that the head of the page states; None or an empty list leaves a paragraph out.

    Attributes:
        overall: Whether referral by uncertainty beats random referral, over all methods and sets.
        outcomes: The same by set.
        gains: Sets on which the leading method gains, and its share of the possible gain is known.
        scarce: Sets with too few errors or patients.
        shift: The change under shift.
        referral: Sets whose gain from referral is known, the shifted one first.
        missed: Referable images that are missed.
        order: How the methods compare.
        screening: The screening standard by set.
        detection: AUROC of the uncertainty of shifted against in-domain images.
    """

    overall: Overall
    outcomes: Sequence[SetOutcome]
    gains: Sequence[str]
    scarce: Sequence[ScarceSet]
    shift: ShiftChange | None
    referral: Sequence[str]
    missed: MissedImages | None
    order: MethodOrder | None
    screening: Sequence[ScreeningStandard]
    detection: Quantity | None


def verdict(evaluation: Evaluation) -> Verdict:
    """Return the facts of the verdict; each follows from the intervals of the evaluation."""
    sets = evaluation.domains
    outcomes = [_outcome(evaluation, name) for name in sets]
    known = [name for name in reversed(sets) if evaluation.lead_value(name, "gain_at_50").defined]
    detection = evaluation.lead_value("joint", "ood_auroc") if len(sets) > 1 else None
    return Verdict(
        overall=_overall(outcomes),
        outcomes=outcomes,
        gains=[
            name
            for name in sets
            if evaluation.lead_value(name, "gain_at_50").sign() == 1
            and evaluation.lead_value(name, "closed_at_50").defined
        ],
        scarce=[few for name in sets if (few := _scarce(evaluation, name)) is not None],
        shift=_shift(evaluation),
        referral=known,
        missed=_missed(evaluation, sets[-1]),
        order=_order(evaluation),
        screening=[one for name in sets if (one := _screening(evaluation, name)) is not None],
        detection=detection if detection is not None and detection.defined else None,
    )


def _outcome(evaluation: Evaluation, name: str) -> SetOutcome:
    signs = [
        evaluation.get(i, name, "gain_at_50").sign()
        for i in range(len(evaluation.methods))
        if (i, name) in evaluation.cases
    ]
    return SetOutcome(name, signs.count(1), signs.count(-1), len(signs))


def _overall(outcomes: Sequence[SetOutcome]) -> Overall:
    better, worse, total = (sum(counts) for counts in zip(*(one.counts for one in outcomes), strict=True))
    if better == total:
        return "better"
    if worse == total:
        return "worse"
    return "partly worse" if worse else "partly better" if better else "unclear"


def _scarce(evaluation: Evaluation, name: str) -> ScarceSet | None:
    case = evaluation.first(evaluation.leader, name)
    if case is None:
        return None
    errors, patients = int((~case.correct).sum()), len(np.unique(case.cluster))
    few = errors < FEW_ERRORS or patients < FEW_PATIENTS
    return ScarceSet(name, errors, len(case), patients) if few else None


def _shift(evaluation: Evaluation) -> ShiftChange | None:
    if len(evaluation.domains) < 2:
        return None
    known = all(evaluation.lead_value(name, "auroc").defined for name in evaluation.domains)
    score = "auroc" if known else "accuracy"
    change = evaluation.change(evaluation.leader, score)
    return None if change is None else ShiftChange(score, change)


def _missed(evaluation: Evaluation, name: str) -> MissedImages | None:
    case, share = evaluation.first(evaluation.leader, name), evaluation.lead_value(name, "missed_at_50")
    if case is None or not share.defined:
        return None
    retained = evaluation.lead_value(name, "prevalence_at_50")
    return MissedImages(name, int(case.label.sum()), share, float(case.label.mean()), retained)


def _order(evaluation: Evaluation) -> MethodOrder | None:
    leads = evaluation.leads()
    if not leads:
        return None
    ahead = [lead for lead in leads if lead.gap.sign() > 0]
    level = [lead for lead in leads if lead.gap.sign() == 0]
    nearest = min(ahead, key=lambda lead: lead.gap.value) if ahead else None

    def name(other: int) -> str:
        return evaluation.methods[other].name

    return MethodOrder(
        evaluation.sets[-1],
        [name(lead.other) for lead in ahead],
        [name(lead.other) for lead in level],
        len(leads),
        name(nearest.other) if nearest else "",
        nearest.gap if nearest else Quantity(np.nan),
    )


def _screening(evaluation: Evaluation, name: str) -> ScreeningStandard | None:
    goal = GOALS["nhs"].sensitivity
    found = {i: evaluation.get(i, name, NHS_SCORE) for i in range(len(evaluation.methods))}
    known = [i for i, quantity in found.items() if quantity.defined]
    if not known:
        return None
    sure = [i for i in known if found[i].low >= goal]
    estimated = [i for i in known if found[i].value >= goal and i not in sure]
    best = max(known, key=lambda i: found[i].value)
    names = [method.name for method in evaluation.methods]
    return ScreeningStandard(
        name, [names[i] for i in sure], [names[i] for i in estimated], names[best], found[best]
    )
