"""Certificates: their level by simulation with dependent images, invariances, every target, refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.metrics.guarantees.certificate import certify
from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.guarantees.risks import ReferralCases, weights
from retinabench.metrics.guarantees.threshold import choose_threshold
from support.dependent_images import drawn

TARGETS = [
    Goal("selective_risk", 0.1), Goal("accuracy", 0.9), Goal("sensitivity", 0.8), Goal("missed_severe", 0.25),
    Goal("specificity", 0.85), Goal("npv", 0.85), Goal("ppv", 0.8), Goal("referral_rate", 0.6),
]  # fmt: skip


def draw(rng, patients, per="image"):
    """Images that depend on each other, with ties of the uncertainty."""
    label, prob, patient, severe = drawn(rng, patients)
    uncertainty = np.round(0.5 - np.abs(prob - 0.5), 2)
    return ReferralCases(label, prob > 0.5, uncertainty, patient, weights(patient, per), severe)


@pytest.fixture(scope="module", params=["image", "patient-image"])
def population(request):
    """The estimand, and a function goal, threshold -> the true risk, from 100,000 patients."""
    cases = draw(np.random.default_rng(99), 100_000, request.param)

    def risk(goal, threshold):
        num, den = goal.spec.sums(cases, threshold)
        return num.sum() / den.sum()

    return request.param, risk


def test_goals_are_broken_at_most_at_their_level(population):
    """12 studies of 200 patients with delta 10 %: the SE of a share of 10 % is 8.7 %; `benchmarks/guarantees.py` has more.

    Each goal is tested under one of the estimands.
    """
    per, risk = population
    goals = TARGETS[::2] if per == "image" else TARGETS[1::2]
    broken = dict.fromkeys(goals, 0)
    plain = 0
    for study in range(12):
        cases = draw(np.random.default_rng([7, study]), 200, per)
        plain += risk(TARGETS[0], choose_threshold(cases, TARGETS[:1]).threshold) > 0.1
        for goal in goals:
            found = certify(cases, [goal], 0.1)
            broken[goal] += found.granted and risk(goal, found.threshold) > goal.max_risk
    assert max(broken.values()) / 12 <= 0.1 + 3 * 0.087
    assert sum(broken.values()) / (12 * len(goals)) <= 0.1
    assert plain / 12 > 0.2  # the best of many estimates misses its goal in every second to third study


def test_neither_rows_nor_names_change_a_certificate():
    cases = draw(np.random.default_rng(3), 600)
    found = certify(cases, TARGETS[:1], 0.1)
    rng = np.random.default_rng(4)
    rows, names = rng.permutation(len(cases)), rng.permutation(600)
    other = ReferralCases(
        cases.label[rows], cases.positive[rows], cases.uncertainty[rows], names[cases.patient[rows]],
        cases.weight[rows], cases.severe[rows],
    )  # fmt: skip
    assert found.granted
    assert certify(other, TARGETS[:1], 0.1) == found


def test_two_eyes_of_each_patient_make_both_estimands_one():
    rng = np.random.default_rng(5)
    patient = np.repeat(np.arange(200), 2)
    label = rng.random(400) < 0.4
    wrong = rng.random(400) < 0.02
    uncertainty = rng.random(400).round(2)
    thresholds = [
        certify(ReferralCases(label, label ^ wrong, uncertainty, patient, weights(patient, per)), [Goal("selective_risk", 0.1)]).threshold
        for per in ("image", "patient-image")
    ]  # fmt: skip
    assert thresholds[0] == thresholds[1]


def test_several_goals_take_the_most_cautious_threshold():
    cases = draw(np.random.default_rng(8), 800)
    up = [Goal("selective_risk", 0.15), Goal("npv", 0.8)]
    single = [certify(cases, [goal], 0.1).threshold for goal in up]
    assert certify(cases, up, 0.1).threshold == min(single)
    both = certify(cases, [*up, Goal("workload", 0.7)], 0.1)
    assert both.granted
    assert sorted(one.delta for one in both.goals) == pytest.approx([0.045, 0.045, 0.05])
    assert not certify(cases, [*up, Goal("workload", 0.05)], 0.1).granted
    alone = certify(cases, [Goal("workload", 0.5)], 0.1).threshold
    assert np.mean(cases.uncertainty > alone) < 0.5


def test_refusals_say_why_and_how_many_patients_it_takes():
    cases = draw(np.random.default_rng(9), 300)
    wrong = ReferralCases(cases.label, ~cases.label, cases.uncertainty, cases.patient, cases.weight)
    hopeless = certify(wrong, [Goal("selective_risk", 0.05)])
    assert not hopeless.granted
    assert "no lower than 0.05" in hopeless.why
    assert hopeless.needed is None
    right = ReferralCases(cases.label, cases.label, cases.uncertainty, cases.patient, cases.weight)
    few = certify(right, [Goal("selective_risk", 0.001)])
    assert "too few" in few.why
    assert few.needed > 1000
    json.dumps(few.to_dict())
    with pytest.raises(InputError, match="no validation image counts"):
        certify(
            ReferralCases(cases.label, cases.label & False, cases.uncertainty, cases.patient, cases.weight),
            [Goal("ppv", 0.9)],
        )
    with pytest.raises(InputError, match="selective_risk is 0"):
        certify(cases, [Goal("selective_risk", 0.0)])
    with pytest.raises(InputError, match=r"more than 2\. Say --most-images \d+ or more, or leave it out"):
        certify(cases, TARGETS[:1], most_images=2)


def test_a_threshold_below_the_first_test_of_a_goal_is_refused():
    """The sure errors lie lowest: sensitivity is certified up to them, NPV only where they are diluted."""
    n = 1000
    prob = np.linspace(0, 1, n)
    label = (prob > 0.9) | ((np.arange(n) < 40) & (np.arange(n) % 2 == 0))
    cases = ReferralCases(label, np.zeros(n, bool), prob, np.arange(n), np.ones(n))
    goals = [Goal("sensitivity", 0.9), Goal("npv", 0.85)]
    apart = [certify(cases, [goal], 0.1) for goal in goals]
    assert apart[0].threshold < 0.05 < 0.2 < apart[1].begins < apart[1].threshold
    assert label[prob <= apart[0].threshold].mean() > 0.15  # what the pair would break
    both = certify(cases, goals, 0.1)
    assert not both.granted
    assert "for fewer images only" in both.why
