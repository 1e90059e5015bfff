"""The readings of "referred", patients, goals, predictive values and net benefit against golden values and brute force."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from conftest import shared_path
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.decision_curve import (
    net_benefit,
    predictive_value_intervals,
    predictive_values,
)
from retinabench.metrics.clinical.operating_points import Goal, TwoByTwo, judge_goals, two_by_two
from retinabench.metrics.clinical.screening import (
    READINGS,
    patient_level,
    referral_view_intervals,
    referral_views,
)


@pytest.fixture
def data():
    with open(shared_path("golden", "evaluation", "inputs_n400.csv")) as handle:
        rows = list(csv.DictReader(handle))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


@pytest.fixture
def golden():
    return json.loads(shared_path("golden", "evaluation", "own_outputs.json").read_text())


def most_uncertain(data, share):
    """The golden file refers the last of a stable sort by entropy."""
    sent = np.zeros(400, bool)
    sent[np.argsort(data["entropy_nats"], kind="stable")[round(400 * share) :]] = True
    return sent


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
        for reading in READINGS:
            for name, value in want[names[reading]].items():
                assert getattr(ours[reading], rates[name]) == pytest.approx(value, abs=1e-12)


def test_reading_intervals_hold_their_values(data):
    sent = most_uncertain(data, 0.8)
    found = referral_view_intervals(data["y"], data["p"] >= 0.5, sent, data["patient"], replicates=300)
    views = referral_views(data["y"], data["p"] >= 0.5, sent)
    for reading, rates in found.items():
        for rate, (value, low, high) in rates.items():
            assert value == pytest.approx(getattr(views[reading], rate), abs=1e-14)
            assert low <= value <= high


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


def test_goals_distinguish_estimate_and_bound():
    label = np.repeat([1, 0], [198, 621])
    positive = np.concatenate([np.arange(198) < 173, np.arange(621) < 65])
    table, verdicts = judge_goals(label, positive)
    assert table == TwoByTwo(173, 65, 25, 556)
    for verdict in verdicts:  # the trial that led to the approval: by the estimate, not by the bound
        assert verdict.estimate_met
        assert not verdict.bound_met
        assert verdict.sensitivity == pytest.approx((0.8737374, 0.8192757), abs=1e-7)
        assert verdict.specificity == pytest.approx((0.8953301, 0.8685385), abs=1e-7)
    _, verdicts = judge_goals(label, positive, goals={"mine": Goal(0.8, 0.8, "")})
    assert verdicts[0].bound_met
    _, clustered = judge_goals(np.repeat(label, 2), np.repeat(positive, 2), np.repeat(np.arange(819), 2))
    _, naive = judge_goals(np.repeat(label, 2), np.repeat(positive, 2))
    assert clustered[0].sensitivity[1] < naive[0].sensitivity[1]
    assert clustered[0].sensitivity[1] == pytest.approx(0.8192757, abs=2e-3)
    assert not judge_goals([1, 1], [1, 1])[1][0].estimate_met  # no negative: nothing is shown


def test_predictive_values_are_bayes():
    assert predictive_values(0.873737, 0.895330, 0.05) == pytest.approx((0.3052387, 0.9926326), abs=1e-6)
    table = TwoByTwo(173, 65, 25, 556)
    ppv, npv = predictive_values(table.sensitivity, table.specificity, 198 / 819)
    assert (ppv, npv) == pytest.approx((table.ppv, table.npv))
    assert np.isnan(predictive_values(0.9, 1.0, 0.0)[0])
    with pytest.raises(InputError, match="prevalence"):
        predictive_values(0.9, 0.9, 5)


@pytest.mark.parametrize(("sens", "spec"), [(0.87, 0.9), (0.98, 0.97)])
def test_predictive_value_intervals_cover(sens, spec):
    """2,000 tables of 100 and 300 cases: the SE of a coverage of 95 % is 0.5 %."""
    rng = np.random.default_rng(4)
    truth = dict(zip(("ppv", "npv"), predictive_values(sens, spec, 0.1), strict=True))
    covered = dict.fromkeys(truth, 0)
    for tp, tn in zip(rng.binomial(100, sens, 2000), rng.binomial(300, spec, 2000), strict=True):
        found = predictive_value_intervals(TwoByTwo(int(tp), 300 - int(tn), 100 - int(tp), int(tn)), 0.1)
        for name, (value, low, high) in found.items():
            assert low <= value <= high
            covered[name] += low <= truth[name] <= high
    assert min(covered.values()) / 2000 > 0.93
    assert np.isnan(predictive_value_intervals(TwoByTwo(0, 1, 0, 3), 0.1)["ppv"][1])


def test_golden_net_benefit(data, golden):
    want = golden["net_benefit_n400"]
    curve = net_benefit(data["y"], data["p"], [float(t) for t in want])
    for k, values in enumerate(want.values()):
        assert curve.model[k] == pytest.approx(values["model"], abs=1e-12)
        assert curve.treat_all[k] == pytest.approx(values["treat_all"], abs=1e-12)
        assert curve.standardised[k] == pytest.approx(values["standardized"], abs=1e-12)


def test_net_benefit_with_referral_by_brute_force(data):
    sent, thresholds = most_uncertain(data, 0.8), np.array([0.1, 0.35])
    curve = net_benefit(
        data["y"], data["p"], thresholds, referred=sent, reader=(0.9, 0.95), referral_cost=0.02
    )
    for k, t in enumerate(thresholds):
        table = two_by_two(data["y"][~sent], data["p"][~sent] >= t)
        tp = table.tp + 0.9 * data["y"][sent].sum()
        fp = table.fp + 0.05 * (1 - data["y"][sent]).sum()
        want = tp / 400 - fp / 400 * t / (1 - t) - 0.02 * sent.mean()
        assert curve.model[k] == pytest.approx(want, abs=1e-14)
    assert np.isnan(net_benefit([0, 0], [0.1, 0.2], [0.5]).standardised).all()
    with pytest.raises(InputError, match="outside"):
        net_benefit([0, 1], [0.1, 0.2], [1.0])
