"""The comparison of strategies: its numbers by hand, and the claim of the publication on a synthetic bank."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from retinabench.concepts.examinees import SYNTHETIC
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.questioning.strategy_comparison import (
    compare_strategies,
    mean_interval,
    questions_to,
)
from retinabench.core.errors import InputError
from retinabench.core.random_streams import derive
from support.concept_banks import make_answers, make_bank


def test_courses_and_intervals_by_hand():
    bank = make_bank()
    answers = make_answers(bank)
    found = compare_strategies(bank, lambda _: answers, ["random", "precision"], 4, 80, seed=5).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["questions"] == list(range(81))
    courses = np.stack(
        [
            examine(
                bank, answers, strategy="random", questions=80, seed=derive(5, "repetition", k)
            ).uncertainty
            for k in range(4)
        ]
    )
    one = found["strategies"]["random"]
    assert one["mean"] == pytest.approx(courses.mean(axis=0))
    low, high = stats.t.interval(0.95, 3, courses[:, 40].mean(), stats.sem(courses[:, 40]))
    assert (one["low"][40], one["high"][40]) == pytest.approx((low, high))
    for level, count in one["questions_to"].items():
        by_hand = [next((q for q, u in enumerate(row) if u <= float(level) + 1e-4), None) for row in courses]
        if count["reached"] == 4:
            assert count["value"] == pytest.approx(np.mean(by_hand), abs=1)


def test_levels_that_are_not_reached_have_no_number():
    course = np.array([[2.0, 1.5, 1.0], [2.0, 1.9, 1.8]])
    assert questions_to(course, 1.5).tolist()[0] == 1
    assert np.isnan(questions_to(course, 1.5)[1])
    assert mean_interval(np.array([3.0, 3.0])) == (3.0, 3.0, 3.0)


def test_one_repetition_gives_no_interval():
    bank = make_bank()
    with pytest.raises(InputError, match="At least 2"):
        compare_strategies(bank, lambda _: make_answers(bank), repetitions=1)


@pytest.mark.parametrize("name", ["biased-1", "biased-2", "unbiased"])
def test_uncertainty_needs_fewer_questions_than_random(name):
    # Concepts of 70 % to 3 %: random questions seldom meet the rare ones. 5 repetitions, seeded; intervals do not meet.
    bank = make_bank(samples=150, concepts=tuple("abcdef"), shares=(0.7, 0.4, 0.2, 0.1, 0.05, 0.03))
    found = compare_strategies(
        bank, lambda seed: SYNTHETIC[name](bank, seed), ["random", "uncertainty", "unpredictability"], 5, 300
    ).to_dict()["strategies"]
    level = list(found["random"]["questions_to"])[1]
    ours, random = (found[strategy]["questions_to"][level] for strategy in ("uncertainty", "random"))
    assert ours["reached"] == 5
    assert ours["high"] < (random["low"] if random["reached"] == 5 else 300)
