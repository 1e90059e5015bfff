"""Predictive values and net benefit, against Bayes, golden numbers and brute force."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from conftest import shared_path
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.decision_curve import (
    net_benefit,
    predictive_value_intervals,
    predictive_values,
)
from retinabench.metrics.clinical.operating_points import TwoByTwo, two_by_two


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
