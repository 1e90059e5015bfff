"""The findings under the verdict: one paragraph per question, by fixed rules from the numbers.

A statement of difference ("beats", "falls", "raises") is made only where the 95 % interval of that difference
excludes 0; otherwise the page says that these pictures cannot tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from retinabench.metrics.sets import SET_LABELS
from retinabench.reports.evaluation.study import LEAD, Study
from retinabench.reports.toolkit.marking import Place, told, value
from retinabench.reports.toolkit.number_format import join_names, percent

ON = {"in_domain": "in-domain", "shifted": "on the shifted pictures", "joint": "on both sets together"}
GOAL = 0.85
MOST_NAMED = 4
FEW_ERRORS = 10
FEW_PATIENTS = 30
CLEAR = 0.6
"""An AUROC of shifted against in-domain pictures below this is called slight."""


@dataclass(frozen=True)
class Finding:
    """One paragraph: a lead of a few words, the sentences, and whether it is good, bad or neither."""

    lead: str
    text: Markup
    mood: str = ""


def findings(study: Study, sets: list[str]) -> list[Finding]:
    """Return what there is to say of the sets other than `joint`, the most important first."""
    makers = (_scarce, _shift, _referral, _missed, _between, _screening, _notices)
    return [finding for make in makers for finding in make(study, sets)]


def _shift(study: Study, sets: list[str]) -> list[Finding]:
    if len(sets) < 2:
        return []
    i, name = study.leader, study.entries[study.leader].name
    score, label = ("auroc", "AUROC")
    if not all(np.isfinite(study.get(i, s, score).value) for s in sets):
        score, label = "accuracy", "accuracy"
    change = study.changes.get((i, score))
    if change is None:
        return []
    said = Place(name, "shifted_minus_in_domain", score).whole(change, style="signed")
    old, new = told(study, i, "in_domain", score), told(study, i, "shifted", score)
    verb = (
        {-1: "falls", 0: "does not change beyond chance:", 1: "rises"}[change.sign()]
        if change.bounded
        else "goes"
    )
    text = Markup("On the shifted pictures the {} of {} {} from {} to {}; change {}.").format(
        label, name, verb, old, new, said
    )
    return [Finding("The shift.", text, "bad" if change.sign() < 0 else "")]


def _referral(study: Study, sets: list[str]) -> list[Finding]:
    i, name = study.leader, study.entries[study.leader].name
    out: list[Finding] = []
    for on in reversed(sets):
        gain = study.get(i, on, "gain_at_50")
        if not np.isfinite(gain.value):
            continue
        verb = {1: "raises", 0: "moves", -1: "lowers"}[gain.sign()]
        text = Markup(
            "{}, referring the half of the pictures that {} is least sure of {} accuracy from {} to {}. Referring at "
            "random would leave it at {}, a perfect order would bring {}. Gain over random: {}{}"
        ).format(
            ON[on][:1].upper() + ON[on][1:], name, verb, value(study, i, on, "accuracy"),
            told(study, i, on, "accuracy_at_50"), value(study, i, on, "accuracy"),
            value(study, i, on, "perfect_accuracy_at_50"), told(study, i, on, "gain_at_50", style="signed"),
            "." if gain.sign() else ": the interval includes 0, so this may be chance.",
        )  # fmt: skip
        out.append(Finding("Referral." if not out else "", text, {1: "good", 0: "", -1: "bad"}[gain.sign()]))
    return out


def _missed(study: Study, sets: list[str]) -> list[Finding]:
    i, on = study.leader, sets[-1]
    case, missed = study.first(i, on), study.get(i, on, "missed_at_50")
    if case is None or not np.isfinite(missed.value):
        return []
    who, count = study.entries[i].name, int(case.label.sum())
    if missed.value == 0:
        text = Markup("Among its surer half {} calls none of the {} referable {} pictures healthy.").format(
            who, count, SET_LABELS[on].lower()
        )
        return [Finding("What it is sure of.", text)]
    text = Markup(
        "{} calls {} of the {} referable {} pictures healthy and counts them among its surer half: an expert who is "
        "given the other half never sees them."
    ).format(who, told(study, i, on, "missed_at_50", style="percent"), count, SET_LABELS[on].lower())
    kept = study.get(i, on, "prevalence_at_50").value
    if kept < case.label.mean():
        text += Markup(
            " The accuracy of the kept half hides this in part, for referral takes referable pictures away: they are "
            "{} of all and {} of the kept half."
        ).format(percent(float(case.label.mean())), value(study, i, on, "prevalence_at_50", style="percent"))
    return [Finding("What it is sure of, and wrong.", text, "bad")]


def _between(study: Study, sets: list[str]) -> list[Finding]:
    if len(study.entries) < 2:
        return []
    on, leader = study.sets[-1], study.leader
    gaps = {i: gap for i, _, gap in study.leads()}
    ahead = [i for i in gaps if gaps[i].sign() > 0]
    level = [i for i in gaps if gaps[i].sign() == 0]
    name, names = study.entries[leader].name, [entry.name for entry in study.entries]
    parts = []
    if ahead:
        near = min(ahead, key=lambda i: gaps[i].value)
        said = Place(study.lead_label(near), on, LEAD).whole(gaps[near], style="signed", digits=3)
        who = _who([names[i] for i in ahead], len(gaps))
        parts.append(
            Markup("{} is ahead of {}; its lead over {} is {}.").format(name, who, names[near], said)
        )
    if level:
        who = _who([names[i] for i in level], len(gaps))
        why = (
            "the interval of that difference includes"
            if len(level) == 1
            else "the intervals of these differences include"
        )
        parts.append(Markup("These pictures cannot tell {} from {}: {} 0.").format(name, who, why))
    where = "Accuracy with half of the pictures referred" + (f", {ON[on]}" if len(study.sets) > 1 else "")
    text = Markup("{}: {}").format(where, Markup(" ").join(parts))
    return [Finding("Between methods.", text)]


def _who(names: list[str], of: int) -> Markup:
    """Name a few methods, count many."""
    if len(names) <= MOST_NAMED:
        return join_names(names)
    return Markup("all {} others" if len(names) == of else "{} of {} others").format(len(names), of)


def _screening(study: Study, sets: list[str]) -> list[Finding]:
    sentences = []
    for on in sets:
        got = {i: study.get(i, on, "sensitivity_at_specificity_80") for i in range(len(study.entries))}
        known = [i for i in got if np.isfinite(got[i].value)]
        if not known:
            continue
        sure = [i for i in known if got[i].low >= GOAL]
        met = [i for i in known if got[i].value >= GOAL and i not in sure]
        best = max(known, key=lambda i: got[i].value)
        said = told(study, best, on, "sensitivity_at_specificity_80")
        if len(got) > 1:
            said = Markup("at best {}, {}").format(said, study.entries[best].name)
        clauses = [
            Markup("{} {}").format(kind, _methods(study, found))
            for kind, found in (("with its whole interval by", sure), ("by the estimate alone for", met))
            if found
        ]
        verb = Markup("met {}").format(Markup(" and ").join(clauses)) if clauses else "not met"
        where = ON[on][:1].upper() + ON[on][1:]
        sentences.append(Markup("{}, it is {} (sensitivity {}).").format(where, verb, said))
    if not sentences:
        return []
    rule = "The NHS asks for a sensitivity of 0.85 at a specificity of 0.80 or more."
    return [Finding("The screening standard.", Markup("{} {}").format(rule, Markup(" ").join(sentences)))]


def _methods(study: Study, found: list[int]) -> Markup:
    names = [study.entries[i].name for i in found]
    if len(names) <= MOST_NAMED:
        return join_names(names)
    count = len(study.entries)
    return Markup("all {} methods" if len(names) == count else "{} of {} methods").format(len(names), count)


def _scarce(study: Study, sets: list[str]) -> list[Finding]:
    """Warn where errors or patients are too few for intervals to be trusted."""
    few = []
    for on in sets:
        case = study.first(study.leader, on)
        if case is None:
            continue
        wrong, patients = int((~case.correct).sum()), len(np.unique(case.cluster))
        if wrong < FEW_ERRORS or patients < FEW_PATIENTS:
            few.append(
                f"{ON[on]} there are {wrong} wrong answers on {len(case)} pictures of {patients} patients"
            )
    if not few:
        return []
    text = Markup("{}. Intervals from so few are rough and mostly too narrow: score more pictures.")
    said = "; ".join(few)
    return [Finding("Too little to judge.", text.format(said[:1].upper() + said[1:]), "bad")]


def _notices(study: Study, sets: list[str]) -> list[Finding]:
    score = study.get(study.leader, "joint", "ood_auroc")
    if len(sets) < 2 or not np.isfinite(score.value):
        return []
    slightly = "slightly " if score.value < CLEAR else ""
    claim = {
        1: f"is {slightly}higher on shifted pictures than on in-domain ones",
        0: "does not tell shifted pictures from in-domain ones",
        -1: "is lower on shifted pictures than on in-domain ones: it does not see the shift coming",
    }[score.sign(0.5)]
    text = Markup("The uncertainty of {} {} (AUROC of shifted against in-domain {}; 0.5 is chance).").format(
        study.entries[study.leader].name, claim, told(study, study.leader, "joint", "ood_auroc")
    )
    return [Finding("Does it notice the shift?", text, "bad" if score.sign(0.5) < 0 else "")]
