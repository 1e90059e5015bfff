"""The readings of "referred", patients, goals, predictive values and net benefit against golden values and brute force."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from conftest import shared_path
from retinabench.metrics.clinical.decision_curve import (
    net_benefit,
)
from retinabench.metrics.clinical.screening import (
    patient_level,
    referral_view_intervals,
    referral_views,
)
from support.golden_evaluation import most_uncertain


def test_golden_readings(data):
    views = json.loads(shared_path("golden", "evaluation", "referral_views.json").read_text())
    names = {
        "retained_only": "retained_only",
        "screen_positive": "referral_counts_as_screen_positive",
        "expert": "oracle_expert",
        "reader": "expert_sens0_90_spec0_95",
    }
    rates = {
        "sens": "sensitivity",
        "spec": "specificity",
        "acc": "accuracy",
        "prevalence": "prevalence",
        "screen_positive_rate": "positive_rate",
    }
    for key, want in views.items():
        sent = most_uncertain(data, float(key.split("_")[1]))
        ours = referral_views(data["y"], data["p"] >= 0.5, sent)
        counts = ours["retained_only"]
        assert (counts.tp, counts.tn, counts.fp, counts.fn) == tuple(
            want[k] for k in ("tp", "tn", "fp", "fn")
        )
        for reading, theirs in names.items():
            for name, value in want[theirs].items():
                assert getattr(ours[reading], rates[name]) == pytest.approx(value, abs=1e-12)


def test_reading_intervals_hold_their_values(data):
    sent = most_uncertain(data, 0.8)
    found = referral_view_intervals(data["y"], data["p"] >= 0.5, sent, data["patient"])
    views = referral_views(data["y"], data["p"] >= 0.5, sent)
    for reading, rates in found.items():
        for rate, one in rates.items():
            assert one.value == pytest.approx(getattr(views[reading], rate), abs=1e-14)
            assert one.low <= one.value <= one.high


def test_weights_count_as_copies(data):
    weight = np.random.default_rng(0).integers(0, 3, 400)
    sent = most_uncertain(data, 0.7)
    rows = np.repeat(np.arange(400), weight)
    weighted = referral_views(data["y"], data["p"] >= 0.5, sent, weight=weight)
    copied = referral_views(data["y"][rows], data["p"][rows] >= 0.5, sent[rows])
    assert weighted == copied
    first = net_benefit(data["y"], data["p"], [0.1, 0.4], weight=weight, referred=sent, referral_cost=0.01)
    second = net_benefit(
        data["y"][rows], data["p"][rows], [0.1, 0.4], referred=sent[rows], referral_cost=0.01
    )
    np.testing.assert_allclose(first.model, second.model, atol=1e-14)


def test_golden_patients(data, golden):
    people = patient_level(data["y"], data["p"], data["patient"])
    want = golden["patient_level_n200"]
    assert len(people.label) == 200
    assert people.label.mean() == pytest.approx(want["prevalence"])
    assert roc_auc_score(people.label, people.prob) == pytest.approx(want["auc"], abs=1e-12)
    assert (people.images == 2).all()


def test_patients_by_hand():
    label = [0, 1, 0, 0, 1, 1]
    prob = [0.2, 0.9, 0.6, 0.1, 0.3, 0.7]
    patient = ["a", "a", "b", "b", "c", "c"]
    referred = [1, 0, 1, 0, 1, 1]
    people = patient_level(label, prob, patient, referred=referred)
    assert people.label.tolist() == [True, False, True]
    assert people.positive.tolist() == [True, False, False]
    assert people.referred.tolist() == [False, True, True]  # a is positive by its other eye
    assert people.prob.tolist() == [0.9, 0.1, 0.7]


def test_readings_by_hand():
    """Retained: one right positive, one missed, one right negative, one false alarm; referred: two positives, one negative."""
    label = [1, 1, 0, 0, 1, 1, 0]
    positive = [1, 0, 0, 1, 0, 1, 1]
    referred = [0, 0, 0, 0, 1, 1, 1]
    views = referral_views(label, positive, referred, reader=(0.9, 0.8))
    found = {name: (view.sensitivity, view.specificity) for name, view in views.items()}
    assert found["retained_only"] == pytest.approx((1 / 2, 1 / 2))
    assert found["screen_positive"] == pytest.approx((3 / 4, 1 / 3))
    assert found["expert"] == pytest.approx((3 / 4, 2 / 3))
    assert found["reader"] == pytest.approx((2.8 / 4, 1.8 / 3))
