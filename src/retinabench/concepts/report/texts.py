"""What the page of an examination says around its numbers: how to read it, how to repeat it, what to keep in mind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from retinabench.concepts.questioning.examination import ANSWER_DRIVEN
from retinabench.concepts.report.rates import GOALS
from retinabench.reports.toolkit.number_format import join_names, percent

CONTENTS = (
    ("verdict", "Verdict"), ("claims", "Claims"), ("concepts", "Concepts"), ("performance", "Answers"),
    ("strategies", "Strategies"), ("state", "On the way"), ("reading", "How to read"), ("repeat", "How to repeat"),
)  # fmt: skip

STOPPED = {
    "all asked": "every question had been asked",
    "questions": "the allowed number of questions was reached",
    "tolerance": "the uncertainty had come down to the stated level",
    "patience": "the last questions taught nothing new",
    "claims": "every stated claim was decided",
}

COMPANION = (
    "Rates are shares of right answers, yes being an answer of one half or more. “This bank” is what asking every question of "
    "these samples would give: its interval closes to a point when all were asked. “New samples” is what samples drawn in "
    "the same way would give: its interval stays as wide as the number of samples makes it."
)

STATE = (
    "The same number of questions by each strategy, for the commonest concept and the rarest. A strategy that draws from all "
    "questions alike meets few samples with a rare concept, and its band stays wide on the right."
)

TERMS = (
    ("Concept", "Something that is in a sample or is not, such as a haemorrhage in a photograph or in a region of one."),
    ("Question", "“Is this concept in this sample?” The answer is the model's probability of yes; the truth is known beforehand."),
    ("Sensitivity", "Of the samples with the concept, the share answered yes."),
    ("Specificity", "Of the samples without it, the share answered no."),
    ("Recognises", "Yes is said more often where the concept is than where it is not: sensitivity and specificity add up to more than 1, by the lower ends of both intervals. Guessing adds up to 1."),
    ("AUROC", "The chance that a sample with the concept gets a higher P(yes) than one without; it does not depend on the cut at one half. From answers in steps of 0.02."),
    ("Goal", f"Sensitivity {percent(GOALS['sensitivity'])} and specificity {percent(GOALS['specificity'])}, the NHS standard for screening, as a yardstick for every concept. State claims of your own where another is meant."),
    ("Uncertainty", "The area of the 95 % band over the samples without (or with) the concept; 2 before the first question. It tells how much of the range of answers has been seen, not how well the model does, and never reaches 0 for a model that uses few answers."),
    ("Strategies", "Random: any question. Unpredictability: what the truth of earlier questions about the same sample foretells least. Uncertainty: the concept and truth with the widest band. Precision: the concept and truth whose rate is known worst."),
    ("Interval", "95 %. For this bank: Beta-binomial, with finite-population correction; the rate is its mean, a little nearer to one half than the share of right answers while few were asked. For new samples: Jeffreys. Samples count as independent: two eyes of one patient, or regions of one image, make them too narrow. Each interval is for itself: of twenty, one is expected to miss."),
)  # fmt: skip


def standfirst(found: Mapping[str, Any]) -> str:
    """Return what was asked, in one or two sentences."""
    bank = found["bank"]
    everything = sum(bank["positives"].values()) + sum(bank["negatives"].values())
    return (
        f"{found['asked']:,} of {everything:,} questions asked, about {len(bank['concepts'])} concepts in "
        f"{bank['samples']:,} samples, by the strategy “{found['strategy']}”. "
        f"It ended when {STOPPED.get(found['stopped'], found['stopped'])}."
    )


def caution(found: Mapping[str, Any]) -> Markup:
    """Return what to keep in mind when reading the verdict."""
    text = Markup(
        "In brackets: 95 % intervals for new samples. The verdict is about answering right in these images, not about "
        "looking at the lesion: a model that answers “haemorrhage” wherever it sees exudates is right as long as they "
        "come together."
    )
    if found["stopped"] in ANSWER_DRIVEN:
        text += Markup(
            " The answers decided when to stop ({}): the intervals are those of a number of questions fixed beforehand, and "
            "hold somewhat less often than they say."
        ).format(STOPPED[found["stopped"]])
    if not found["companion_valid"]:
        text += Markup(
            " <b>This strategy chooses samples by what else is in them: rates and intervals describe the questions "
            "asked and hold for neither the bank nor new samples.</b>"
        )
    return text


def progress(found: Mapping[str, Any], comparison: Mapping[str, Any]) -> Markup:
    """Say which strategies come down faster than random, by the intervals of the mean area under their curves."""
    curves = comparison["strategies"]
    text = Markup(
        "The uncertainty of all concepts, averaged, against the number of questions; mean of {} repetitions with its 95 % "
        "interval."
    ).format(comparison["repetitions"])
    bank = found["bank"]
    if comparison["questions"][-1] == sum(bank["positives"].values()) + sum(bank["negatives"].values()):
        text += Markup(" All curves end alike, for in the end every question has been asked.")
    if "random" not in curves:
        return text
    middle = slice(len(comparison["questions"]) // 10, 1 + len(comparison["questions"]) // 2)
    faster, slower = [], []
    for name, curve in curves.items():
        below = np.mean(np.asarray(curve["high"])[middle] < np.asarray(curves["random"]["low"])[middle])
        above = np.mean(np.asarray(curve["low"])[middle] > np.asarray(curves["random"]["high"])[middle])
        if name != "random" and below > 0.5:
            faster.append(name)
        if name != "random" and above > 0.5:
            slower.append(name)
    where = "Between a tenth and a half of the questions"
    for names, word in ((faster, "below"), (slower, "above")):
        if names:
            text += Markup(" {}, {} mostly {} {} random.").format(
                where, join_names(names), "lies" if len(names) == 1 else "lie", word
            )
            where = "There"
    if not faster:
        text += Markup(" No strategy clearly learns faster than random on this bank.")
    return text


def facts(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what decides the examination, and its notes."""
    bank = found["bank"]
    readings = {
        "std": "area of the drawn band (standard deviation)",
        "variance": "integral of the variance, as printed",
    }
    rows = [
        ("Strategy", f"{found['strategy']}, rules {found['rules']}, seed {found['seed']}"),
        ("Uncertainty", readings.get(found["reading"], found["reading"])),
        (
            "Bank",
            f"{bank['samples']:,} samples, {len(bank['concepts'])} concepts, SHA-256 {bank['hash'][:16]}",
        ),
    ]
    return rows + [("Note", note) for note in found["notes"]]
