"""Curves of one set against the curves of the scores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from retinabench.metrics.referral_curves import METRICS as REFERRAL
from retinabench.metrics.registry import SCORES
from retinabench.metrics.scoring import referral_curve
from retinabench.metrics.weighted_images import Cases
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.set_statistics import (
    METRICS,
    AllCurves,
    SetPredictions,
    differences,
    observed,
    referral,
)
from support.fake_predictions import population, predictions


@pytest.mark.parametrize("metric", METRICS)
def test_curves_are_those_of_the_scores(metric):
    case = SetPredictions.of(predictions("MC dropout", 0, population(400, 200)), "joint")
    assert case is not None
    curve = referral_curve(case.label, case.prob, case.uncertainty, metric)
    mine = referral(case.cases.weighted(), metric)
    for share in (0.0, 0.25, 0.5, 0.75):
        assert mine[round(100 * share)] == pytest.approx(curve.at(share), abs=1e-12)


@pytest.mark.parametrize("kind", ["free", "entropy", "ties", "one block"])
def test_all_curves_of_many_weightings_are_those_of_one_after_the_other(kind):
    rng = np.random.default_rng(0)
    n = 250
    p = np.round(rng.random(n), 2)
    u = {
        "free": rng.random(n),
        "entropy": p * (1 - p),
        "ties": rng.integers(0, 9, n),
        "one block": np.zeros(n),
    }
    images = [f"i{k}" for k in range(n)]
    given = Predictions(images, rng.random(n) < 0.3, p, uncertainty=u[kind].astype(float))
    case = SetPredictions.of(given, "in_domain")
    assert case is not None
    curves = AllCurves(case)
    weight = rng.multinomial(n, np.full(n, 1 / n), 6).astype(float)
    weight[5] *= np.arange(n) < 12  # few images, perhaps of one class
    np.testing.assert_allclose(curves.rows(weight), np.stack([curves(one) for one in weight]), atol=1e-9)


def test_observed_shares_by_bin_by_hand():
    case = SetPredictions.of(predictions("MC dropout", 0, population(200, 100)), "in_domain")
    assert case is not None
    weight = np.arange(len(case), dtype=float)
    shares = observed(case, weight)
    order = np.argsort(case.prob)
    lowest = order[case.bins[order] == 0]
    assert shares[0] == pytest.approx(np.average(case.label[lowest], weights=weight[lowest]))
    assert np.bincount(case.bins).tolist() == [20] * 10


def test_differences_average_over_seeds_and_have_a_t_interval():
    values = np.array([[1.0], [3.0]])
    replicates = np.stack([np.linspace(0, 1, 101), np.linspace(2, 3, 101)])[..., None]
    whole = Cases([0, 1] * 20, np.linspace(0, 1, 40)).weighted()
    [found] = differences([SCORES["accuracy"]], [whole], values, replicates)
    assert (found.value, found.error) == (2.0, 1.0)
    half = stats.t.ppf(0.975, 39) * np.linspace(1, 2, 101).std(ddof=1)
    assert (found.low, found.high) == (pytest.approx(2 - half), pytest.approx(2 + half))


def test_replicates_that_are_alike_give_no_interval_instead_of_one_without_width():
    whole = Cases([0, 1] * 20, np.linspace(0, 1, 40)).weighted()
    alike = 0.3 + 1e-16 * np.arange(101).reshape(1, 101, 1)
    [found] = differences([SCORES["accuracy"]], [whole], np.array([[0.3]]), alike)
    assert found.value == 0.3
    assert not found.bounded


def test_oracle_referral_refers_every_error_first_at_any_threshold():
    rng = np.random.default_rng(0)
    prob, label = rng.random(200), rng.integers(0, 2, 200)
    found = Predictions([f"i{k}" for k in range(200)], label, prob)
    for threshold in (0.5, 0.2, 0.8):
        case = SetPredictions.of(found, "in_domain", threshold=threshold)
        errors = int((~case.correct).sum())
        accuracy = REFERRAL["accuracy"](case.oracle.weighted())[0]
        assert accuracy[200 - errors - 1] == 1
        assert accuracy[-1] == np.mean((prob >= threshold) == label)
