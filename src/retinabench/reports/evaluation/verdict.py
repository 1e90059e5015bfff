"""The verdict in words, by fixed rules from the numbers.

A statement of difference ("beats", "falls", "raises") is made only where the 95 % interval of that difference
excludes 0; otherwise the page says that these pictures cannot tell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from retinabench.reports.evaluation.findings import ON, Finding, findings
from retinabench.reports.evaluation.study import Study
from retinabench.reports.toolkit.marking import value
from retinabench.reports.toolkit.number_format import join_names


@dataclass(frozen=True)
class Verdict:
    """The answer in one or two sentences, findings, and what to keep in mind."""

    answer: Markup
    findings: list[Finding]
    caution: Markup


def verdict(study: Study) -> Verdict:
    """Judge a study; every sentence follows from its intervals."""
    sets = [name for name in study.sets if name != "joint"]
    return Verdict(_answer(study, sets), findings(study, sets), _caution(study))


def _answer(study: Study, sets: list[str]) -> Markup:
    signs = {
        name: [
            study.get(i, name, "gain_at_50").sign()
            for i in range(len(study.entries))
            if (i, name) in study.cases
        ]
        for name in sets
    }
    every = [sign for row in signs.values() for sign in row]
    lead = (
        "Better than chance, short of perfect." if all(sign == 1 for sign in every)
        else "Misleading." if all(sign == -1 for sign in every)
        else "Misleading in part." if -1 in every
        else "Only in part." if 1 in every
        else "Not shown by these pictures."
    )  # fmt: skip
    claims = {name: _claim(row) for name, row in signs.items()}
    if len(set(claims.values())) == 1:
        where = join_names([ON[name] for name in sets])
        text = Markup("{}, {}.").format(where, claims[sets[0]])
    else:
        text = Markup("; ").join(Markup("{}, {}").format(ON[name], claims[name]) for name in sets) + "."
    return Markup("<b>{}</b> {}{}").format(lead, text[:1].upper() + text[1:], _way(study, sets))


def _claim(signs: list[int]) -> str:
    won, count = signs.count(1), len(signs)
    if count == 1:
        return {
            1: "referring what the model is least sure of beats referring at random",
            0: "referring what the model is least sure of cannot be told from referring at random",
            -1: "referring what the model is least sure of is worse than referring at random",
        }[signs[0]]
    who = f"all {count} methods" if won == count else f"{won or 'none'} of {count} methods"
    worse = f" and is worse for {signs.count(-1)}" if -1 in signs else ""
    return f"referring by uncertainty beats referring at random for {who}{worse}"


def _way(study: Study, sets: list[str]) -> Markup:
    """Say how far the leading method gets between random and a perfect order, where it gets anywhere."""
    i = study.leader
    ways = [
        Markup("{} {}").format(value(study, i, name, "closed_at_50", style="percent"), ON[name])
        for name in sets
        if study.get(i, name, "gain_at_50").sign() == 1
        and np.isfinite(study.get(i, name, "closed_at_50").value)
    ]
    if not ways:
        return Markup("")
    who = "it" if len(study.entries) == 1 else study.entries[i].name
    return Markup(" On the way from random to a perfect order {} gets {}.").format(
        who, Markup(" and ").join(ways)
    )


def _caution(study: Study) -> Markup:
    text = Markup(
        "In brackets: 95 % intervals from {} bootstrap draws of patients. “Beats”, “falls” and “raises” stand only "
        "where the interval of the difference excludes 0. Numbers after referral describe the pictures that the model "
        "keeps, not the whole clinic."
    ).format(f"{study.bootstrap:,}")
    if len(study.entries) > 1:
        text += Markup(
            " {} leads here because its referral accuracy area {} is the largest; it was chosen on these very "
            "pictures, which flatters it."
        ).format(study.entries[study.leader].name, ON[study.sets[-1]])
    return text
