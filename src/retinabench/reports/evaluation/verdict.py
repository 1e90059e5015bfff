"""The verdict: whether a model's uncertainty is worth having, as the facts behind the sentences of `findings.html.j2`.

A fact that the page states in one paragraph is a mapping; None or an empty list leaves the paragraph out.

What a model is worth against a baseline that never looks at an image: the first thing that page and terminal say.

The sentences are in `templates/worth.html.j2`, and are the same on the page and in the terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from retinabench.reports.evaluation.evaluation import Evaluation
from retinabench.reports.evaluation.terminal import Worth, worth
from retinabench.reports.toolkit.number_format import Quantity

Fact = Mapping[str, Any]
Overall = Literal["better", "worse", "partly worse", "partly better", "unclear"]
FEW_ERRORS, FEW_PATIENTS = 10, 30
SLIGHT = 0.6  # An AUROC of shifted against in-domain images below this is called slight.


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
    """Everything that the head of the page states.

    `worth` is that of the leading method by set, `useful` the number of useful methods and of methods by set. `overall` and
    `outcomes` (by set) say whether referral by uncertainty beats random referral. `gains` are the sets on which the leading method
    gains by a known share of the possible gain, `referral` those whose gain is known, the shifted one first. `detection` is the
    AUROC of the uncertainty of shifted against in-domain images.
    """

    worth: Sequence[Worth]
    useful: Mapping[str, tuple[int, int]]
    overall: Overall
    outcomes: Sequence[Fact]
    gains: Sequence[str]
    scarce: Sequence[Fact]
    shift: Fact | None
    referral: Sequence[str]
    dips: Sequence[Fact]
    retained: Mapping[str, Retained]
    missed: Fact | None
    order: Fact | None
    detection: Quantity | None


def verdict(evaluation: Evaluation) -> Verdict:
    e, sets = evaluation, evaluation.domains
    gains = {name: e.lead_value(name, e.at("gain")) for name in sets}
    known = {name for name in sets if e.lead_value(name, e.at("closed")).defined}
    detection = e.lead_value("joint", "ood_auroc") if len(sets) > 1 else None
    outcomes = [_outcome(e, name) for name in sets]
    worths = {name: [_worth(e, i, name) for i in range(len(e.methods))] for name in sets}
    kinds = {name: [one.kind for one in found if one is not None] for name, found in worths.items()}
    return Verdict(
        worth=[own for found in worths.values() if (own := found[e.leader]) is not None],
        useful={name: (found.count("useful"), len(found)) for name, found in kinds.items()},
        overall=_overall(outcomes),
        outcomes=outcomes,
        gains=[name for name in sets if gains[name].sign() == 1 and name in known],
        scarce=[few for name in sets if (few := _scarce(e, name)) is not None],
        shift=_shift(e),
        referral=[name for name in reversed(sets) if gains[name].defined],
        dips=[dip for name in sets if (dip := _dip(e, name)) is not None],
        retained={name: left for name in e.sets if (left := _retained(e, name)) is not None},
        missed=_missed(e, sets[-1]),
        order=_order(e),
        detection=detection if detection is not None and detection.defined else None,
    )


def _worth(e: Evaluation, i: int, name: str) -> Worth | None:
    found = [file[name] for file in e.files[i] if name in file.sets] if e.files else []
    return worth(e.methods[i].name, name, found[0], lambda score: e.get(i, name, score)) if found else None


def _dip(e: Evaluation, name: str) -> Fact | None:
    """Where the accuracy of the leading method lies below random referral; `sure` if the upper end of the band does somewhere."""
    band = e.curves.get((e.leader, name, "accuracy"))
    if band is None or not np.isfinite(band.y[0]):
        return None
    below = np.flatnonzero(band.y < band.y[0] - 1e-12)
    if not below.size:
        return None
    low, high = float(band.x[below[0]]), float(band.x[below[-1]])
    sure = bool((band.high[below] < band.y[0]).any())
    return {"set": name, "low": low, "high": high, "sure": sure, "lowest": float(band.y[below].min())}


def _retained(e: Evaluation, name: str) -> Retained | None:
    case = e.first(e.leader, name)
    if case is None:
        return None

    def pair(score: str) -> tuple[Quantity, Quantity]:
        return e.lead_value(name, score), e.lead_value(name, e.at(score))

    share = e.lead_value(name, e.at("prevalence"))
    prevalence, accuracy = float(case.label.mean()), pair("accuracy")[1]
    return Retained(name, prevalence, share, *pair("sensitivity"), *pair("specificity"), accuracy)


def _outcome(e: Evaluation, name: str) -> Fact:
    methods = [i for i in range(len(e.methods)) if (i, name) in e.cases]
    signs = [e.get(i, name, e.at("gain")).sign() for i in methods]
    counts = signs.count(1), signs.count(-1), len(signs)
    return {"set": name, "counts": counts, **dict(zip(("better", "worse", "methods"), counts, strict=True))}


def _overall(outcomes: Sequence[Fact]) -> Overall:
    better, worse, total = (sum(numbers) for numbers in zip(*(one["counts"] for one in outcomes), strict=True))
    if better == total:
        return "better"
    if worse == total:
        return "worse"
    return "partly worse" if worse else "partly better" if better else "unclear"


def _scarce(e: Evaluation, name: str) -> Fact | None:
    case = e.first(e.leader, name)
    if case is None:
        return None
    errors, patients = int((~case.correct).sum()), len(np.unique(case.cluster))
    if errors >= FEW_ERRORS and patients >= FEW_PATIENTS:
        return None
    return {"set": name, "errors": errors, "images": len(case), "patients": patients}


def _shift(e: Evaluation) -> Fact | None:
    if len(e.domains) < 2:
        return None
    score = "auroc" if all(e.lead_value(name, "auroc").defined for name in e.domains) else "accuracy"
    change = e.change(e.leader, score)
    return None if change is None else {"score": score, "change": change}


def _missed(e: Evaluation, name: str) -> Fact | None:
    case, share = e.first(e.leader, name), e.lead_value(name, e.at("missed"))
    if case is None or not share.defined:
        return None
    positives, prevalence = int(case.label.sum()), float(case.label.mean())
    retained = e.lead_value(name, e.at("prevalence"))
    return {
        "set": name, "positives": positives, "share": share, "prevalence": prevalence, "retained": retained,
    }  # fmt: skip


def _order(e: Evaluation) -> Fact | None:
    """Of which methods the leading one is ahead by paired intervals on the last set, and which it cannot be told from (`level`).

    `gap` is its difference from the `nearest` of those behind.
    """
    leads = e.leads()
    if not leads or not e.same_images:
        return None
    behind = sorted((lead for lead in leads if lead.gap.sign() > 0), key=lambda lead: lead.gap.value)
    names = [method.name for method in e.methods]
    return {
        "set": e.sets[-1],
        "ahead": [names[lead.other] for lead in leads if lead.gap.sign() > 0],
        "level": [names[lead.other] for lead in leads if lead.gap.sign() == 0],
        "others": len(leads),
        "nearest": names[behind[0].other] if behind else "",
        "gap": behind[0].gap if behind else Quantity(np.nan),
    }
