"""Rates of an examination and what their simultaneous intervals show."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.concepts.inference.confidence_sequences import new_sequence
from retinabench.concepts.report.concept_rates import ConceptRate, recognition


def made(measure, right, asked, goal=None, alpha=0.05):
    return ConceptRate(
        "x",
        measure,
        right,
        asked,
        asked,
        new_sequence(right, asked, 0.05),
        new_sequence(right, asked, alpha),
        goal,
    )


def test_rates_are_those_of_the_counts(found):
    for sensitivity, specificity in found.rates:
        counts = found.examination[sensitivity.concept].counts
        assert (sensitivity.right, specificity.right) == (counts["tp"], counts["tn"])
        assert sensitivity.asked == counts["tp"] + counts["fn"]
        assert specificity.of == found.to_dict()["bank"]["negatives"][sensitivity.concept]
        assert specificity.interval == new_sequence(specificity.right, specificity.asked, 0.05)
        # The absent concept has no sensitivity: seven rates hold together.
        assert specificity.simultaneous == new_sequence(specificity.right, specificity.asked, 0.05 / 7)


def test_a_goal_is_missed_or_met_by_the_interval_of_all_rates():
    assert made("sensitivity", 3, 10, 0.85).standing == "missed"
    assert made("sensitivity", 3, 10, 0.85, alpha=1e-4).standing == "open"
    assert made("sensitivity", 60, 60, 0.85).standing == "met"
    assert made("sensitivity", 60, 60).standing == "no goal"


def test_two_answers_conclude_nothing_whatever_the_goal():
    two = made("sensitivity", 0, 2, 0.9999)
    assert two.simultaneous[1] < 0.9999
    assert two.standing == "open"
    assert made("sensitivity", 0, 3, 0.9999).standing == "missed"


@pytest.mark.parametrize(
    ("right", "verdict"),
    [
        ((95, 95), "recognised"),
        ((100, 0), "open"),
        ((50, 50), "open"),
        ((5, 5), "reversed"),
        ((30, 98), "recognised"),
    ],
)
def test_recognition_needs_more_than_a_habit_of_saying_yes_or_no(right, verdict):
    pair = [made(m, k, 100) for m, k in zip(("sensitivity", "specificity"), right, strict=True)]
    assert recognition(*pair) == verdict


def test_guessing_is_seldom_called_recognition():
    # 20 positives and 40 negatives answered by a coin of any bias: both intervals must err for a false "recognised".
    random = np.random.default_rng(3)
    wrong = 0
    for _ in range(400):
        p = random.random()
        pair = (
            made("sensitivity", random.binomial(20, p), 20),
            made("specificity", random.binomial(40, 1 - p), 40),
        )
        wrong += recognition(*pair) == "recognised"
    assert wrong <= 12  # 3 %; the two-sided bound is 5 %
