"""What `transfer --zones` prints: which zone is refused, which goals are claimed, and the table of sets."""

from __future__ import annotations

import re
from io import StringIO

import numpy as np
from rich.console import Console

import retinabench as rb
from retinabench.reports.guarantees.triage_terminal import triage_summary


def triaged(goals, delta=0.1):
    label = np.arange(400) % 2
    prob = np.where(label == 1, 0.9, 0.1)
    predictions = rb.Predictions(
        [f"i{k}" for k in range(800)], [*label, *label], [*prob, *prob], split=["validation"] * 400 + ["test"] * 400
    )  # fmt: skip
    found = rb.triage(predictions, goals, delta=delta, bootstrap=20)
    out = StringIO()
    Console(file=out, width=80).print(triage_summary(found))
    return found, out.getvalue()


def test_both_zones_share_the_error():
    _, text = triaged(["npv=.9", "ppv=.9"])
    words = " ".join(text.split())
    assert words.startswith(
        "Certified on validation: negative where P(referable) <= 0.1, positive where P(referable) >= 0.9; the"
    )
    assert (
        "Claim, per image: NPV of the retained at least 0.9; PPV of the retained at least 0.9; with confidence 0.9 over"
        in words
    )
    assert "patients, half of the error for each zone." in words
    rows = [re.sub(r"\s{2,}", "|", line.strip()) for line in text.splitlines()]
    assert "referable images missed|0 of 200|0 of 200" in rows
    assert "certificate|holds" in rows
    assert "called negative|0.50|0.50" in rows


def test_goals_of_a_refused_zone_are_not_claimed():
    found, text = triaged(["npv=.9", "ppv=.9999"])
    words = " ".join(text.split())
    assert words.startswith(
        "Refused, no positive zone is certified: for PPV of the retained at least 0.9999, the risk is"
    )
    assert "Claim, per image: NPV of the retained at least 0.9; with confidence 0.9" in words
    assert not any("zone is empty" in note for note in found.notes)


def test_the_plain_choice_claims_nothing():
    _, text = triaged(["npv=.9"], delta=None)
    assert text.startswith("Frozen on validation, not certified: negative where")
    assert "\nGoal, per image: NPV of the retained at least 0.9.\n" in text
    assert "Claim" not in text


def test_where_every_zone_is_refused_the_goals_are_not_called_a_claim():
    found, text = triaged(["npv=.9999", "ppv=.9999"])
    words = " ".join(text.split())
    assert set(found.refused) == {"negative", "positive"}
    assert "Claim" not in words
    assert (
        "Goal, per image: NPV of the retained at least 0.9999; PPV of the retained at least 0.9999;" in words
    )
