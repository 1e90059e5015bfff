"""The verdict: whether a model's uncertainty is worth having, as the facts behind the sentences of `findings.html.j2`.

A fact that the page states in one paragraph is a mapping; None or an empty list leaves the paragraph out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from retinabench.reports.evaluation.evaluation import Evaluation
from retinabench.reports.evaluation.terminal import Worth, worth
from retinabench.reports.toolkit.number_format import Quantity

Fact = Mapping[str, Any]
FEW_ERRORS, FEW_PATIENTS = 10, 30
SLIGHT = 0.6  # An AUROC of shifted against in-domain images below this is called slight.


def verdict(evaluation: Evaluation) -> Fact:
    """Return everything that the head of the page states.

    `worth` is that of the leading method by set, `useful` the number of useful methods and of methods by set. `overall` and
    `outcomes` (by set) say whether referral by uncertainty beats random referral. `gains` are the sets on which the leading method
    gains by a known share of the possible gain, `referral` those whose gain is known, the shifted one first. `detection` is the
    AUROC of the uncertainty of shifted against in-domain images.
    """
    e, sets = evaluation, evaluation.domains
    gains = {name: e.lead_value(name, e.at("gain")) for name in sets}
    known = {name for name in sets if e.lead_value(name, e.at("closed")).defined}
    detection = e.lead_value("joint", "ood_auroc") if len(sets) > 1 else None
    outcomes = [_outcome(e, name) for name in sets]
    worths = {name: [_worth(e, i, name) for i in range(len(e.methods))] for name in sets}
    kinds = {name: [one.kind for one in found if one is not None] for name, found in worths.items()}
    return {
        "worth": [own for found in worths.values() if (own := found[e.leader]) is not None],
        "useful": {name: (found.count("useful"), len(found)) for name, found in kinds.items()},
        "overall": _overall(outcomes),
        "outcomes": outcomes,
        "gains": [name for name in sets if gains[name].sign() == 1 and name in known],
        "scarce": [few for name in sets if (few := _scarce(e, name)) is not None],
        "shift": _shift(e),
        "referral": [name for name in reversed(sets) if gains[name].defined],
        "dips": [dip for name in sets if (dip := _dip(e, name)) is not None],
        "retained": {name: left for name in e.sets if (left := _retained(e, name)) is not None},
        "missed": _missed(e, sets[-1]),
        "order": _order(e),
        "detection": detection if detection is not None and detection.defined else None,
    }


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


def _retained(e: Evaluation, name: str) -> Fact | None:
    """What referral does to the composition of a set, by the leading method: before, and among the retained images.

    `change` is 1 or -1 where the share of referable images rises or falls, 0 where this is not shown; `below_baseline` tells whether
    the accuracy after referral lies below always giving the retained images the answer of their larger class.
    """
    case = e.first(e.leader, name)
    if case is None:
        return None
    share, accuracy = (e.lead_value(name, e.at(score)) for score in ("prevalence", "accuracy"))
    prevalence, larger = float(case.label.mean()), max(share.value, 1 - share.value)
    return {
        "set": name, "prevalence": prevalence, "retained_prevalence": share,
        **{score: e.lead_value(name, score) for score in ("sensitivity", "specificity")},
        **{f"retained_{score}": e.lead_value(name, e.at(score)) for score in ("sensitivity", "specificity")},
        "change": share.sign(prevalence), "larger_class": larger,
        "below_baseline": accuracy.defined and accuracy.value < larger,
    }  # fmt: skip


def _outcome(e: Evaluation, name: str) -> Fact:
    methods = [i for i in range(len(e.methods)) if (i, name) in e.cases]
    signs = [e.get(i, name, e.at("gain")).sign() for i in methods]
    counts = signs.count(1), signs.count(-1), len(signs)
    return {"set": name, "counts": counts, **dict(zip(("better", "worse", "methods"), counts, strict=True))}


def _overall(outcomes: Sequence[Fact]) -> str:
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
    prevalence, retained = float(case.label.mean()), e.lead_value(name, e.at("prevalence"))
    positives = int(case.label.sum())
    return {"set": name, "positives": positives, "share": share, "prevalence": prevalence, "retained": retained}


def _order(e: Evaluation) -> Fact | None:
    """Of which methods the leading one is ahead by paired intervals on the last set, and which it cannot be told from (`level`).

    `gap` is its difference from the `nearest` of those behind.
    """
    leads = e.leads()
    if not leads or not e.same_images:
        return None
    ahead = [other for other, gap in leads.items() if gap.sign() > 0]
    nearest = min(ahead, key=lambda other: leads[other].value, default="")
    return {
        "set": e.sets[-1],
        "ahead": ahead,
        "level": [other for other, gap in leads.items() if gap.sign() == 0],
        "others": len(leads),
        "nearest": nearest,
        "gap": leads.get(nearest, Quantity(np.nan)),
    }
