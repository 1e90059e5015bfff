"""Calibration: the line against its known truth in correlated eyes, and the curve by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import expit, logit

import retinabench as rb
from retinabench.metrics.calibration.recalibration import calibration_line_of
from retinabench.metrics.calibration.summary import calibration_summary
from retinabench.metrics.sorted_images import Cases


def test_values_are_those_of_the_line():
    rng = np.random.default_rng(0)
    p = expit(rng.normal(-1, 1.5, 400))
    y = rng.random(400) < expit(0.7 * logit(p) - 0.3)
    found, line = calibration_summary(y, p, np.arange(400)), calibration_line_of(Cases(y, p).weighted())
    assert (found.slope.value, found.intercept.value) == (line.slope, line.intercept)
    assert found.in_the_large.value == line.in_the_large
    assert found.observed_over_expected.value == pytest.approx(line.observed_over_expected)
    assert sum(point.images for point in found.curve) == 400
    assert len(found.curve) == 10
    weighted = sum(point.images * point.observed.value for point in found.curve)
    assert weighted == pytest.approx(y.sum())
    assert json.dumps(found.to_dict(), allow_nan=False)


def test_the_line_has_the_intervals_of_score():
    rng = np.random.default_rng(3)
    p, patient = expit(rng.normal(-1, 1.5, 200)), np.repeat(np.arange(100), 2)
    y = rng.random(200) < p
    one = rb.score(rb.Predictions(np.arange(200), y, p, patient_id=patient), bootstrap=1)["in_domain"]
    found = calibration_summary(y, p, patient).to_dict()
    for name in ("slope", "intercept", "in_the_large", "observed_over_expected"):
        line = getattr(one.calibration, f"line_{name}")
        assert [found[name]["low"], found[name]["high"]] == pytest.approx([line.low, line.high], rel=1e-9)


def test_robust_errors_of_independent_images_are_those_of_the_information():
    """At n = 20,000 of a true model the sandwich equals the inverse information to a few percent."""
    rng = np.random.default_rng(1)
    x = rng.normal(-1, 1, 20_000)
    p = expit(x)
    found = calibration_summary(rng.random(len(p)) < p, p, np.arange(len(p)))
    design, v = np.column_stack([np.ones(len(x)), x]), p * (1 - p)
    error = np.sqrt(np.diag(np.linalg.inv((design * v[:, None]).T @ design)))
    for one, expected in zip((found.intercept, found.slope), error, strict=True):
        assert (one.high - one.low) / 2 / 1.96 == pytest.approx(expected, rel=0.05)


def test_intervals_cover_with_correlated_eyes():
    """80 studies of 150 patients with correlated eyes (seed 2): the SE of a coverage of 95 % is 2.4 %."""
    rng = np.random.default_rng(2)
    covered = np.zeros(3)
    patient = np.repeat(np.arange(150), 2)
    for _ in range(80):
        x = np.repeat(rng.normal(-0.5, 1, 150), 2) + rng.normal(size=300)
        p = expit(x)
        # Residuals are shared by the eyes of a patient: one uniform number for both in half of the patients.
        u = np.where(np.repeat(rng.random(150) < 0.5, 2), np.repeat(rng.random(150), 2), rng.random(300))
        found = calibration_summary(u < p, p, patient)
        truths = ((found.slope, 1), (found.in_the_large, 0), (found.observed_over_expected, 1))
        covered += [one.low <= truth <= one.high for one, truth in truths]
    assert (covered / 80 > 0.95 - 3 * 0.024).all()


def test_one_class_has_a_bound_and_no_line():
    found = calibration_summary([0] * 30, np.full(30, 0.1), np.arange(30))
    assert np.isnan(found.slope.value)
    assert found.observed_over_expected.value == 0
    assert found.observed_over_expected.high == pytest.approx((1 - 0.025 ** (1 / 30)) / 0.1)
    assert len(found.curve) == 1
