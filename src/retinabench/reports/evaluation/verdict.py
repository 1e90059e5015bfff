"""The verdict: whether a model's uncertainty is worth having, in sentences with their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from retinabench.reports.evaluation.evaluation import Evaluation
from retinabench.reports.evaluation.tables import NHS_SCORE, nhs_met
from retinabench.reports.evaluation.worth import Worth, worth
from retinabench.reports.toolkit.number_format import Quantity

"""A gain in Brier skill by a correction of the prior that is worth a sentence."""
"""The verdicts on a model that orders or scores the images wrongly."""
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
    """Referable images that the leading method calls not referable and retains: their share of `positives`; and the share of referable images in the set (`prevalence`) and among the retained."""

    set: str
    positives: int
    share: Quantity
    prevalence: float
    retained: Quantity


@dataclass(frozen=True)
class MethodOrder:
    """How the leading method compares with the `others`, by paired intervals on one set.

    It is ahead of some and cannot be told from others (`level`); `gap` is its difference from the `nearest` of those behind.
    """

    set: str
    ahead: Sequence[str]
    level: Sequence[str]
    others: int
    nearest: str
    gap: Quantity


@dataclass(frozen=True)
class ScreeningStandard:
    """Which methods meet the NHS standard on a set at their decision thresholds: by both bounds (`sure`), or by the estimates alone.

    A threshold that was chosen on the same images (`chosen_here`) meets nothing. `reachable` is the largest sensitivity at a
    specificity of 0.80, of the method `best`, by a threshold chosen on these images.
    """

    set: str
    sure: Sequence[str]
    estimated: Sequence[str]
    chosen_here: bool
    best: str
    reachable: Quantity


@dataclass(frozen=True)
class Dip:
    """Where the accuracy of the leading method lies below random referral: from `low` to `high` referred, down to `lowest`; `sure` if the upper end of the band does somewhere."""

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

    `worth` is that of the leading method by set, `useful` the number of useful methods and of methods by set. `overall` and
    `outcomes` (by set) say whether referral by uncertainty beats random referral. `gains` are the sets on which the leading method
    gains by a known share of the possible gain, `referral` those whose gain is known, the shifted one first. `detection` is the
    AUROC of the uncertainty of shifted against in-domain images.
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


FEW_ERRORS = 10
FINDINGS_FEW_PATIENTS = 30
SLIGHT = 0.6
"""An AUROC of shifted against in-domain images below this is called slight."""


def verdict(evaluation: Evaluation) -> Verdict:
    """Return the facts of the verdict; each follows from the intervals of the evaluation."""
    sets = evaluation.domains
    outcomes = [_outcome(evaluation, name) for name in sets]
    known = [name for name in reversed(sets) if evaluation.lead_value(name, evaluation.at("gain")).defined]
    detection = evaluation.lead_value("joint", "ood_auroc") if len(sets) > 1 else None
    worths = {
        (i, name): value
        for i in range(len(evaluation.methods))
        for name in sets
        if (value := _worth(evaluation, i, name)) is not None
    }
    return Verdict(
        worth=[worths[evaluation.leader, name] for name in sets if (evaluation.leader, name) in worths],
        useful={
            name: (
                sum(one.kind == "useful" for (_, where), one in worths.items() if where == name),
                sum(where == name for _, where in worths),
            )
            for name in sets
        },
        overall=_overall(outcomes),
        outcomes=outcomes,
        gains=[
            name
            for name in sets
            if evaluation.lead_value(name, evaluation.at("gain")).sign() == 1
            and evaluation.lead_value(name, evaluation.at("closed")).defined
        ],
        scarce=[few for name in sets if (few := _scarce(evaluation, name)) is not None],
        shift=_shift(evaluation),
        referral=known,
        dips=[dip for name in sets if (dip := _dip(evaluation, name)) is not None],
        retained={
            name: left for name in evaluation.sets if (left := _retained(evaluation, name)) is not None
        },
        missed=_missed(evaluation, sets[-1]),
        order=_order(evaluation),
        screening=[one for name in sets if (one := _screening(evaluation, name)) is not None],
        detection=detection if detection is not None and detection.defined else None,
    )


def _worth(evaluation: Evaluation, i: int, name: str) -> Worth | None:
    found = [file[name] for file in evaluation.files[i] if name in file.sets] if evaluation.files else []
    if not found:
        return None
    return worth(evaluation.methods[i].name, name, found[0], lambda score: evaluation.get(i, name, score))


def _dip(evaluation: Evaluation, name: str) -> Dip | None:
    band = evaluation.curves.get((evaluation.leader, name, "accuracy"))
    if band is None or not np.isfinite(band.y[0]):
        return None
    below = np.flatnonzero(band.y < band.y[0] - 1e-12)
    if not below.size:
        return None
    sure = bool((band.high[below] < band.y[0]).any())
    return Dip(name, float(band.x[below[0]]), float(band.x[below[-1]]), sure, float(band.y[below].min()))


def _retained(evaluation: Evaluation, name: str) -> Retained | None:
    case = evaluation.first(evaluation.leader, name)
    if case is None:
        return None

    def pair(score: str) -> tuple[Quantity, Quantity]:
        return evaluation.lead_value(name, score), evaluation.lead_value(name, evaluation.at(score))

    share = evaluation.lead_value(name, evaluation.at("prevalence"))
    return Retained(
        name, float(case.label.mean()), share, *pair("sensitivity"), *pair("specificity"), pair("accuracy")[1]
    )


def _outcome(evaluation: Evaluation, name: str) -> SetOutcome:
    signs = [
        evaluation.get(i, name, evaluation.at("gain")).sign()
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
    few = errors < FEW_ERRORS or patients < FINDINGS_FEW_PATIENTS
    return ScarceSet(name, errors, len(case), patients) if few else None


def _shift(evaluation: Evaluation) -> ShiftChange | None:
    if len(evaluation.domains) < 2:
        return None
    known = all(evaluation.lead_value(name, "auroc").defined for name in evaluation.domains)
    score = "auroc" if known else "accuracy"
    change = evaluation.change(evaluation.leader, score)
    return None if change is None else ShiftChange(score, change)


def _missed(evaluation: Evaluation, name: str) -> MissedImages | None:
    case, share = (
        evaluation.first(evaluation.leader, name),
        evaluation.lead_value(name, evaluation.at("missed")),
    )
    if case is None or not share.defined:
        return None
    retained = evaluation.lead_value(name, evaluation.at("prevalence"))
    return MissedImages(name, int(case.label.sum()), share, float(case.label.mean()), retained)


def _order(evaluation: Evaluation) -> MethodOrder | None:
    leads = evaluation.leads()
    if not leads or not evaluation.same_images:
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
    found = {i: evaluation.get(i, name, NHS_SCORE) for i in range(len(evaluation.methods))}
    known = [i for i, quantity in found.items() if quantity.defined]
    if not known:
        return None
    met = {i: nhs_met(evaluation, i, name) for i in known}
    best = max(known, key=lambda i: found[i].value)
    names = [method.name for method in evaluation.methods]
    return ScreeningStandard(
        name,
        [names[i] for i in known if met[i] == "bound"],
        [names[i] for i in known if met[i] == "estimate"],
        any(met[i] == "chosen here" for i in known),
        names[best],
        found[best],
    )
