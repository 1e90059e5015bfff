"""Referral curves against scikit-learn on the retained images, one count at a time."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from retinabench.core.errors import InputError
from retinabench.metrics.score import referral_curve
from retinabench.metrics.selective.referral_curves import METRICS, curve_of
from retinabench.metrics.sorted_images import Cases
from support.shared_inputs import big, images


def retained_weights(u, w):
    """(K, N) weight of every image at every count, from the definition: the block at the threshold is shared."""
    total = w.sum()
    count = max(1, round(total))
    rows = []
    for k in range(count, 0, -1):
        left, row = total * k / count, np.zeros(len(u))
        for value in np.unique(u):
            block = u == value
            if (mass := w[block].sum()) > 0:
                row[block] = w[block] * min(1.0, max(0.0, left / mass))
                left -= mass
        row[row < 1e-11 * w] = 0
        rows.append(row)
    return np.array(rows)


def by_sklearn(metric, y, p, r):
    keep = r > 0
    y, p, r = y[keep], p[keep], r[keep]
    if metric == "auroc":
        return metrics.roc_auc_score(y, p, sample_weight=r) if len(set(y)) == 2 else np.nan
    if metric == "auprc":
        return metrics.average_precision_score(y, p, sample_weight=r) if y.any() else np.nan
    if metric == "accuracy":
        return metrics.accuracy_score(y, p > 0.5, sample_weight=r)
    if metric == "brier":
        return np.average((p - y) ** 2, weights=r)
    if metric == "prevalence":
        return np.average(y, weights=r)
    if metric == "nll":
        return metrics.log_loss(y, np.clip(p, 1e-15, 1 - 1e-15), sample_weight=r, labels=[0, 1])
    if metric in ("sensitivity", "specificity"):
        of = 1 if metric == "sensitivity" else 0
        return np.average((p > 0.5)[y == of] == of, weights=r[y == of]) if (y == of).any() else np.nan
    raise AssertionError(metric)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=15, deadline=None)
@given(case=images())
def test_every_count_equals_sklearn(metric, case):
    y, p, u, w = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        truth = np.array([by_sklearn(metric, y, p, r) for r in retained_weights(u, w)])
    value = referral_curve(y, p, u, metric, weight=w).value
    np.testing.assert_allclose(value, truth, atol=1e-12, rtol=0)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=25, deadline=None)
@given(case=images(), seed=st.integers(0, 1000))
def test_row_order_never_matters(metric, case, seed):
    y, p, u, _ = case
    order = np.random.default_rng(seed).permutation(len(y))
    a, b = referral_curve(y, p, u, metric), referral_curve(y[order], p[order], u[order], metric)
    np.testing.assert_array_equal(a.value, b.value)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=25, deadline=None)
@given(case=images())
def test_whole_weights_are_repetition(metric, case):
    y, p, u, w = case
    w = np.floor(w)
    if w.sum() == 0:
        return
    times = w.astype(int)
    a = referral_curve(y, p, u, metric, weight=w)
    b = referral_curve(np.repeat(y, times), np.repeat(p, times), np.repeat(u, times), metric)
    np.testing.assert_allclose(a.value, b.value, atol=1e-12)
    np.testing.assert_allclose(a.area, b.area, atol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
@settings(max_examples=30, deadline=None)
@given(case=images())
def test_only_the_order_of_the_uncertainty_counts(metric, case):
    y, p, u, w = case
    a = referral_curve(y, p, u, metric, weight=w)
    b = referral_curve(y, p, np.unique(u, return_inverse=True)[1] ** 3 - 7.0, metric, weight=w)
    np.testing.assert_allclose(a.value, b.value, atol=1e-12)


def test_area_is_the_mean_over_counts_with_ten_of_each_class():
    y, p, rng = big(300)
    curve = referral_curve(y, p, rng.random(300), "auroc")
    enough = np.minimum(curve.positives, curve.negatives) >= 10
    assert curve.area == pytest.approx(curve.value[enough].mean(), abs=1e-14)
    assert curve.reach == pytest.approx(curve.referred[enough].max())
    assert 0.5 < curve.reach < 1


def test_one_class_has_no_auroc_and_says_why():
    curve = referral_curve([1, 1, 1], [0.2, 0.7, 0.9], [0.3, 0.2, 0.1], "auroc")
    assert np.isnan(curve.value).all()
    assert np.isnan(curve.area)
    assert "3 positive and 0 negative" in curve.why


def test_a_curve_says_where_a_class_runs_out():
    curve = referral_curve([1, 0, 0, 0], [0.9, 0.1, 0.2, 0.3], [4.0, 1, 2, 3], "auroc")
    assert np.isnan(curve.value[1:]).all()
    assert "10 images" in curve.why
    curve = referral_curve([1, 0, 0, 0], [0.9, 0.1, 0.2, 0.3], [4.0, 1, 2, 3], "sensitivity")
    assert curve.why.startswith("undefined at 3 of 4 counts")
    assert curve.positives.tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("metric", ["accuracy", "nll", "brier", "prevalence"])
def test_means_are_exactly_the_expectation_over_random_tie_breaking(metric):
    y, p, u = np.array([1, 0, 1, 0, 1, 1]), np.array([0.9, 0.8, 0.3, 0.1, 0.6, 0.2]), [0, 1, 1, 1, 1, 2.0]
    values = []
    for order in itertools.permutations(range(4)):
        distinct = np.array([0, *(1 + np.array(order) / 10), 2])
        values.append(referral_curve(y, p, distinct, metric).value)
    np.testing.assert_allclose(referral_curve(y, p, u, metric).value, np.mean(values, axis=0), atol=1e-14)


def test_a_constant_uncertainty_is_the_expectation_over_random_orders():
    y, p, _ = big(50)
    u = np.zeros(50)
    for metric in ("accuracy", "nll", "brier", "prevalence"):
        value = referral_curve(y, p, u, metric).value
        np.testing.assert_allclose(value, value[0], atol=1e-12)


def test_wrong_words_are_named():
    with pytest.raises(InputError, match="auroc"):
        referral_curve([0, 1], [0.1, 0.9], [1, 2], "auorc")
    with pytest.raises(InputError, match="corrected"):
        referral_curve([0, 1], [0.1, 0.9], [1, 2], "auroc", rules="correct")
    with pytest.raises(InputError, match="weights"):
        referral_curve([0, 1], [0.1, 0.9], [1, 2], "auroc", weight=[-1, 1])


def test_value_at_a_referred_fraction():
    y, p, rng = big(100)
    curve = curve_of(Cases(y, p, rng.random(100)).weighted(), "accuracy")
    assert curve.at(0.0) == curve.value[0]
    assert curve.at(0.5) == curve.value[50]
    assert curve.at(0.7) == curve.value[70]
