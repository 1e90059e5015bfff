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
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.operating_points import (
    TwoByTwo,
    operating_points,
    sensitivity_at_specificity,
    specificity_at_sensitivity,
    two_by_two,
)
from retinabench.metrics.inference.proportions import clopper_pearson, clustered_proportion


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


def test_proportions_and_ratios():
    table = two_by_two([1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0, 0, 0])
    assert (table.tp, table.fp, table.fn, table.tn) == (2, 1, 1, 4)
    assert (table.ppv, table.npv, table.accuracy) == (2 / 3, 4 / 5, 6 / 8)
    assert table.positive_likelihood_ratio == pytest.approx((2 / 3) / (1 / 5))
    assert table.negative_likelihood_ratio == pytest.approx((1 / 3) / (4 / 5))
    assert TwoByTwo(3, 0, 1, 5).positive_likelihood_ratio == np.inf
    empty = two_by_two([0, 0], [0, 0])
    assert np.isnan(empty.sensitivity)
    assert empty.to_dict()["sensitivity"]["value"] is None


def test_single_images_give_clopper_pearson_up_to_the_t_quantile():
    rng = np.random.default_rng(1)
    hit = rng.random(2000) < 0.85
    value, low, high = clustered_proportion(hit, np.ones(2000), np.arange(2000))
    assert value == hit.mean()
    np.testing.assert_allclose((low, high), clopper_pearson(hit.sum(), 2000), atol=2e-4)


def test_copied_images_count_once():
    rng = np.random.default_rng(2)
    hit = rng.random(500) < 0.9
    once = clustered_proportion(hit, np.ones(500), np.arange(500))
    twice = clustered_proportion(np.repeat(hit, 2), np.ones(1000), np.repeat(np.arange(500), 2))
    assert twice == pytest.approx(once, abs=1e-12)
    all_right = clustered_proportion(np.ones(40), np.ones(40), np.repeat(np.arange(20), 2))
    assert all_right == pytest.approx((1.0, *clopper_pearson(20, 20)), abs=1e-12)


def test_the_clustered_interval_covers_where_the_naive_does_not():
    """1,000 data sets, 80 patients x 3 images with intraclass correlation 0.6, p = 0.8; SE of a coverage 0.7 %."""
    rng = np.random.default_rng(3)
    patient = np.repeat(np.arange(80), 3)
    own = naive = 0
    for _ in range(1000):
        common = np.repeat(rng.random(80) < 0.8, 3)
        hit = np.where(rng.random(240) < np.sqrt(0.6), common, rng.random(240) < 0.8)
        _, low, high = clustered_proportion(hit, np.ones(240), patient)
        own += low <= 0.8 <= high
        low, high = clopper_pearson(hit.sum(), 240)
        naive += low <= 0.8 <= high
    assert 0.93 <= own / 1000 <= 0.99  # an exact-type interval is conservative
    assert naive / 1000 < 0.90


def test_nothing_eligible_and_wrong_input():
    assert np.isnan(clustered_proportion([1, 0], [0, 0], [1, 2])).all()
    with pytest.raises(InputError, match="zeros and ones"):
        two_by_two([0, 3], [0, 1])
    with pytest.raises(InputError, match="1 decisions for 2 labels"):
        two_by_two([0, 1], [1])
    with pytest.raises(InputError, match="2 finite numbers"):
        operating_points([0, 1], [0.2, np.nan])
