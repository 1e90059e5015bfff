"""What an examination says in words: what the model lacks, what the data lack, what was not asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from retinabench.concepts.report.rates import (
    GOALS,
    SIDES,
    Rate,
    needed,
    ranking,
    ranks_rightly,
    rates,
    recognition,
)
from retinabench.reports.evaluation.findings import Finding
from retinabench.reports.toolkit.number_format import join_names, percent, plain


def answer(found: Mapping[str, Any]) -> Markup:
    """Return the headline: which concepts the model recognises."""
    said: dict[str, list[str]] = {"recognised": [], "reversed": [], "open": [], "unknown": []}
    for pair in rates(found):
        seen = all(rate.asked for rate in pair)
        said[recognition(*pair) if seen else "unknown"].append(pair[0].concept)
    parts = []
    if said["recognised"]:
        parts.append(Markup("The model recognises {}.").format(join_names(said["recognised"])))
    if said["open"]:
        text = Markup("At the cut of one half, nothing better than guessing is shown for {}.")
        parts.append(text.format(join_names(said["open"])))
    if said["reversed"]:
        text = Markup("For {}, its answers are the wrong way round.")
        parts.append(text.format(join_names(said["reversed"])))
    if said["unknown"]:
        text = Markup("Nothing can be said about {}: no sample with it, or none without it, was asked.")
        parts.append(text.format(join_names(said["unknown"])))
    return Markup(" ").join(parts)


def model_findings(found: Mapping[str, Any]) -> list[Finding]:
    """Return what the answers show about the model: what it misses, and what it does well enough."""
    findings = []
    for pair in rates(found):
        one = found["concepts"][pair[0].concept]
        for rate in pair:
            if rate.standing == "missed":
                findings.append(Finding(f"{rate.concept}:", _missed(rate, one), "bad"))
    met = [pair[0].concept for pair in rates(found) if all(rate.standing == "met" for rate in pair)]
    if met:
        text = Markup("sensitivity of at least {} and specificity of at least {} are shown for {}.").format(
            percent(GOALS["sensitivity"]), percent(GOALS["specificity"]), join_names(met)
        )
        findings.append(Finding("Good enough for screening:", text, "good"))
    if not findings:
        text = Markup(
            "yet for no concept are a sensitivity of at least {} and a specificity of at least {} both shown."
        ).format(percent(GOALS["sensitivity"]), percent(GOALS["specificity"]))
        findings.append(Finding("No failure is shown:", text))
    return findings


def _missed(rate: Rate, one: Mapping[str, Any]) -> Markup:
    """Say by how much a rate misses its goal, and whether another cut of P(yes) would help."""
    share = f"all {rate.of:,}" if rate.asked == rate.of else f"{rate.asked:,} of {rate.of:,}"
    text = Markup("asked about {} samples {} it, the model was right about {}: {} {}, goal {}.").format(
        share, SIDES[rate.measure][3], f"{rate.right:,}", rate.measure, rate.told(), percent(rate.goal)
    )
    counts = one["counts"]
    said = [
        word for word, n in (("yes", counts["tp"] + counts["fp"]), ("no", counts["tn"] + counts["fn"])) if n
    ]
    if len(said) == 1:
        text += Markup(" It answered {} to every question about it.").format(said[0])
    found = ranking(one)
    if found is not None and ranks_rightly(one):
        text += Markup(
            " Yet it ranks samples rightly more often than not (AUROC {}): another cut of P(yes) than one half would serve better."
        ).format(plain(found.auroc))
    return text


def data_findings(found: Mapping[str, Any]) -> list[Finding]:
    """Return what no questioning could show with these samples, whatever the model."""
    findings = [*_rare(found), *_entangled(found)]
    if not findings:
        text = Markup(
            "every concept has enough samples with it and without it, and no two always come together."
        )
        findings.append(Finding("Nothing that questions need:", text, "good"))
    return findings


def _rare(found: Mapping[str, Any]) -> list[Finding]:
    """Concepts of which there are too few samples of a kind to show a good model to be good."""
    findings = []
    for side, (measure, goal) in enumerate(GOALS.items()):
        least = needed(goal)
        scarce = [pair[side] for pair in rates(found) if pair[side].of < least]
        if scarce:
            names = join_names(
                [f"{rate.concept} ({rate.of} of {found['bank']['samples']})" for rate in scarce]
            )
            text = Markup(
                "{}. Even right answers to all of them could not show a {} of {} for new samples; that takes at least {}."
            ).format(names, measure, percent(goal), least)
            findings.append(Finding(f"Too few samples {SIDES[measure][3]}", text, "bad"))
    return findings


def _entangled(found: Mapping[str, Any]) -> list[Finding]:
    """Concepts that nearly always come together: each group as one finding."""
    groups: list[tuple[set[str], int]] = []
    for pair in found["bank"].get("together", ()):
        joined, most = set(pair["concepts"]), pair["one"]
        for group in [group for group in groups if group[0] & joined]:
            groups.remove(group)
            joined, most = joined | group[0], max(most, group[1])
        groups.append((joined, most))
    findings = []
    for joined, most in groups:
        names = join_names([name for name in found["bank"]["concepts"] if name in joined])
        often = "never differ" if most == 0 else f"differ in at most {most}"
        text = Markup(
            "{}; pairs of them {} in the {} samples. Right answers about one may come from seeing another."
        )
        findings.append(
            Finding("Mostly together:", text.format(names, often, found["bank"]["samples"]), "bad")
        )
    return findings


def open_findings(found: Mapping[str, Any]) -> list[Finding]:
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
            rate.asked,
            rate.of,
            SIDES[rate.measure][3],
            rate.measure,
            rate.told() if rate.asked else "unknown",
        )
        findings.append(Finding(f"{rate.concept}:", text))
    if not findings:
        text = Markup("more questions to this bank would settle nothing that they have left open.")
        findings.append(Finding("Enough was asked:", text))
    return findings


def claim_verdict(claim: Mapping[str, Any]) -> Markup:
    """Return what the questions say about a stated claim."""
    confidence = percent(claim["confidence"])
    if claim["decided"] == "undecided":
        return Markup(
            "Undecided after {} of {} questions about it: neither the claim nor its opposite is shown."
        ).format(claim["asked"], claim["of"])
    after = "before the first question" if not claim["after"] else f"at question {claim['after']}"
    word = "Holds" if claim["decided"] == "holds" else "Does not hold"
    return Markup("{}, decided {} at a confidence of {}.").format(word, after, confidence)
