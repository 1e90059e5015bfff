"""Differences of two models: scales, Holm's correction and the adjusted interval of few patients, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import retinabench as rb


def pair(seed=0, patients=60):
    """The same probabilities with two uncertainties."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(patients), 2)
    label = rng.random(2 * patients) < 0.4
    prob = np.clip(0.25 + 0.5 * label + rng.normal(0, 0.3, 2 * patients), 0, 1)
    common = {"image_id": np.arange(2 * patients), "label": label, "patient_id": patient}
    unsure = -np.abs(prob - 0.5)
    return [
        rb.Predictions(probs=prob, uncertainty=unsure + noise * rng.normal(size=len(prob)), **common)
        for noise in (0.05, 0.3)
    ]


def test_prr_is_a_failure_auroc_on_twice_the_scale():
    found = rb.compare(*pair(), bootstrap=50, scores=["prr", "failure_auroc"])["in_domain"]
    prr, auroc = found["prr"], found["failure_auroc"]
    assert prr.difference == pytest.approx(2 * auroc.difference)
    assert (prr.low, prr.high) == pytest.approx((2 * auroc.low, 2 * auroc.high))
    assert prr.p == pytest.approx(auroc.p)


def test_better_needs_the_corrected_p_value():
    patients = 60
    ids, label = np.arange(patients), np.arange(patients) % 2
    wrong = ids < 6
    worse = rb.Predictions(ids, label, np.where(wrong, 1 - label, label) * 0.8 + 0.1)
    right = rb.Predictions(ids, label, label * 0.8 + 0.1)
    alone = rb.compare(right, worse, bootstrap=20, scores=["accuracy"])["in_domain"]["accuracy"]
    assert alone.p == alone.p_holm == pytest.approx(2 * 0.5**6)
    assert alone.better == "a"
    assert (
        rb.compare(right, worse, bootstrap=20, scores=["accuracy"], level=0.99)["in_domain"][
            "accuracy"
        ].better
        is None
    )
    several = rb.compare(right, worse, bootstrap=20, scores=["accuracy", "sensitivity", "specificity"])[
        "in_domain"
    ]
    parts = [several["sensitivity"], several["specificity"]]
    assert several["accuracy"].p_holm == pytest.approx(3 * alone.p)
    assert several["accuracy"].better is None
    assert [one.p for one in parts] == [pytest.approx(2 * 0.5**3)] * 2
    assert [one.better for one in parts] == [None, None]


def test_the_interval_of_a_proportion_adds_two_patients():
    """5 patients of one image, right by the first model alone in one: Bonett and Price's interval with Student's t."""
    label = np.array([0, 1, 0, 1, 0])
    a = rb.Predictions(np.arange(5), label, label * 0.8 + 0.1)
    b = rb.Predictions(np.arange(5), label, np.where(np.arange(5) == 2, 0.9, label * 0.8 + 0.1))
    found = rb.compare(a, b, bootstrap=20, scores=["accuracy"])["in_domain"]["accuracy"]
    gained = np.array([0, 0, 1, 0, 0, 1, -1]) - 1 / 7
    half = stats.t.ppf(0.975, 6) * np.sqrt(7 / 6 * gained @ gained) / 7
    assert (found.low, found.high) == pytest.approx((1 / 7 - half, 1 / 7 + half))
    assert found.p == 1.0
