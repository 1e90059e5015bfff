"""Operating points against the golden file, brute force over thresholds, and statsmodels-style clustered variances."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_curve

from conftest import shared_path
from retinabench.metrics.clinical.operating_points import (
    ClinicalGoal,
    TwoByTwo,
    judge_goals,
    operating_points,
    sensitivity_at_specificity,
    specificity_at_sensitivity,
    two_by_two,
)


def n400():
    with open(shared_path("golden", "evaluation", "inputs_n400.csv")) as handle:
        rows = list(csv.DictReader(handle))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def test_golden_operating_points():
    golden = json.loads(shared_path("golden", "evaluation", "own_outputs.json").read_text())
    data, met = n400(), False
    for name, want in golden["operating_points_n400"].items():
        if "@" not in name:
            continue
        goal = float(name[-4:])
        find = sensitivity_at_specificity if name.startswith("sens") else specificity_at_sensitivity
        point = find(data["y"], data["p"], goal)
        assert point.threshold == want["threshold"]
        assert point.sensitivity == pytest.approx(want["sensitivity"], abs=1e-12)
        assert point.specificity == pytest.approx(want["specificity"], abs=1e-12)
    _, sens, spec = operating_points(data["y"], data["p"])
    met = bool(((sens >= 0.85) & (spec >= 0.80)).any())
    assert met is golden["operating_points_n400"]["nhs_85_80_met_anywhere"]


def test_golden_two_by_two():
    golden = json.loads(shared_path("golden", "evaluation", "own_outputs.json").read_text())["idxdr_2x2"]
    table = TwoByTwo(tp=173, fp=65, fn=25, tn=556).to_dict()
    for name, want in golden.items():
        if "/" in name:
            got = table[name.split()[0]]
            assert got["value"] == pytest.approx(want["point"], abs=1e-12)
            assert got["wilson"] == pytest.approx(want["wilson"], abs=1e-12)
            assert got["clopper_pearson"] == pytest.approx(want["clopper_pearson"], abs=1e-12)


CASES = st.lists(st.tuples(st.booleans(), st.integers(0, 8)), min_size=1, max_size=40)


@given(CASES, st.floats(0, 1))
@settings(deadline=None)
def test_the_best_point_by_brute_force(cases, goal):
    y, p = np.array([c[0] for c in cases]), np.array([c[1] / 8 for c in cases])
    tables = {t: two_by_two(y, p >= t) for t in (np.inf, *np.unique(p))}
    for find, first, second in (
        (sensitivity_at_specificity, "sensitivity", "specificity"),
        (specificity_at_sensitivity, "specificity", "sensitivity"),
    ):
        point = find(y, p, goal)
        if y.all() or not y.any():
            assert np.isnan(point.threshold)
            continue
        allowed = [t for t in tables.values() if getattr(t, second) >= goal]
        assert getattr(point, first) == max(getattr(t, first) for t in allowed)
        assert getattr(point, second) >= goal
        assert tables[point.threshold].sensitivity == point.sensitivity
        assert tables[point.threshold].specificity == point.specificity


def test_points_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    y, p = rng.random(500) < 0.3, rng.random(500).round(2)
    threshold, sens, spec = operating_points(y, p)
    fpr, tpr, oracle = roc_curve(y, p, drop_intermediate=False)
    np.testing.assert_array_equal(threshold, oracle)
    np.testing.assert_allclose(sens, tpr, atol=1e-15)
    np.testing.assert_allclose(1 - spec, fpr, atol=1e-15)


def test_a_specificity_of_exactly_the_goal_counts():
    y, p = np.array([0] * 5 + [1] * 5), np.array([0.1, 0.1, 0.1, 0.1, 0.9, 0.9, 0.9, 0.9, 0.9, 0.1])
    assert sensitivity_at_specificity(y, p, 0.8).sensitivity == 0.8


def test_proportions():
    table = two_by_two([1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0, 0, 0])
    assert (table.tp, table.fp, table.fn, table.tn) == (2, 1, 1, 4)
    assert (table.ppv, table.npv, table.accuracy) == (2 / 3, 4 / 5, 6 / 8)
    empty = two_by_two([0, 0], [0, 0])
    assert np.isnan(empty.sensitivity)
    assert empty.to_dict()["sensitivity"]["value"] is None


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
    _, verdicts = judge_goals(label, positive, goals={"mine": ClinicalGoal(0.8, 0.8, "")})
    assert verdicts[0].bound_met
    _, clustered = judge_goals(np.repeat(label, 2), np.repeat(positive, 2), np.repeat(np.arange(819), 2))
    _, naive = judge_goals(np.repeat(label, 2), np.repeat(positive, 2))
    assert clustered[0].sensitivity[1] < naive[0].sensitivity[1]
    assert clustered[0].sensitivity[1] == pytest.approx(0.8192757, abs=2e-3)
    assert not judge_goals([1, 1], [1, 1])[1][0].estimate_met  # no negative: nothing is shown
