"""Targets under either assumption: the truth is covered where the assumption holds, and refusals say why."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit

from retinabench.metrics.guarantees.goals import Goal, ReferralCases
from retinabench.metrics.guarantees.shift.estimates import estimates_under_shift
from retinabench.metrics.guarantees.shift.weighted import Images


def cases(rng, patients, centre=-1.0):
    """Two eyes with logits around `centre`; calibrated, so that a change of the centre is a covariate shift."""
    x = np.repeat(rng.normal(centre, 1.2, patients), 2) + rng.normal(0, 0.5, 2 * patients)
    p = expit(x)
    label = rng.random(len(p)) < p
    found = ReferralCases(
        label, p > 0.5, 0.5 - np.abs(p - 0.5), np.repeat(np.arange(patients), 2), np.ones(len(p))
    )
    return found, p


def unlabelled(found, prob):
    return Images(prob, found.uncertainty, found.patient, found.weight)


GOALS = [Goal("selective_risk", 0.2), Goal("sensitivity", 0.6), Goal("referral_rate", 0.6)]


def test_covariate_shift_covers_the_truth_and_the_threshold_meets_the_goals():
    rng = np.random.default_rng(0)
    validation, prob = cases(rng, 1500)
    many, _ = cases(rng, 100_000, 0.0)
    new, new_prob = cases(rng, 1000, 0.0)
    found = estimates_under_shift(validation, prob, unlabelled(new, new_prob), GOALS, 0.4)
    covariate, label = found.assumed
    for goal in GOALS:
        truth = goal.spec.estimate(many, 0.4).value
        one = covariate.targets[str(goal)].risk
        assert one.low <= truth <= one.high
        assert one.high - one.low < 0.15
    assert covariate.threshold is not None
    assert GOALS[0].spec.estimate(many, covariate.threshold).value <= 0.2
    assert GOALS[1].spec.estimate(many, covariate.threshold).value >= 0.6
    assert label.name == "label shift"
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_model_that_cannot_tell_labels_apart_is_refused_under_label_shift_alone():
    rng = np.random.default_rng(1)
    validation, _ = cases(rng, 300)
    guesses = rng.random(600)
    blind = ReferralCases(
        validation.label, guesses > 0.5, validation.uncertainty, validation.patient, validation.weight
    )
    found = estimates_under_shift(blind, guesses, unlabelled(blind, guesses), GOALS[:1], 0.4)
    assert found.assumed[0].targets[str(GOALS[0])].why is None
    assert "too little" in found.assumed[1].targets[str(GOALS[0])].why
    assert found.to_dict()["prevalence"]["value"] is None


def test_without_a_shift_both_are_the_plain_value():
    rng = np.random.default_rng(2)
    validation, prob = cases(rng, 400)
    found = estimates_under_shift(validation, prob, unlabelled(validation, prob), GOALS[:1], 0.4)
    plain = GOALS[0].spec.estimate(validation, 0.4).value
    for one in found.assumed:
        assert one.targets[str(GOALS[0])].risk.value == pytest.approx(plain, rel=1e-4)
