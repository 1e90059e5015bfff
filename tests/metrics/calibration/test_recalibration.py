"""The calibration line and the correction of the prior, against golden numbers and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from retinabench.core.errors import InputError
from retinabench.metrics.calibration.recalibration import (
    calibration_line_of,
    correct_prior,
    line_intervals_of,
)
from retinabench.metrics.sorted_images import Cases
from support.shared_inputs import answers, cases_of


def truth():
    return answers("own_outputs")["calibration_n400"]


def test_golden_line():
    y, p, _ = cases_of("n400")
    found, t = calibration_line_of(Cases(y, p).weighted()), truth()
    assert (found.intercept, found.slope) == pytest.approx(t["calibration_intercept_slope"], abs=1e-7)
    assert found.in_the_large == pytest.approx(t["calibration_in_the_large_offset"], abs=1e-7)
    assert found.observed_over_expected == pytest.approx(t["observed_over_expected"], abs=1e-12)


def test_line_against_sklearn_with_weights():
    rng = np.random.default_rng(3)
    p = rng.random(500)
    y = rng.random(500) < expit(0.4 + 0.6 * logit(p))
    w = rng.integers(0, 4, 500).astype(float)
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(logit(p)[:, None], y, sample_weight=w)
    found = calibration_line_of(Cases(y, p).weighted(w))
    assert found.slope == pytest.approx(model.coef_[0, 0], abs=1e-5)
    assert found.intercept == pytest.approx(model.intercept_[0], abs=1e-5)


def test_line_without_a_maximum_is_undefined():
    assert np.isnan(calibration_line_of(Cases([1, 1], [0.3, 0.6]).weighted()).slope)
    assert np.isnan(calibration_line_of(Cases([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9]).weighted()).slope)


def test_fits_have_no_interval_where_the_classes_are_nearly_parted():
    rng = np.random.default_rng(5)
    y = rng.random(400) < 0.3
    p = np.where(y, 0.95, 0.05) + rng.uniform(-0.04, 0.04, 400)
    p[:4] = 1 - p[:4]
    few = line_intervals_of(Cases(y, p).weighted())
    assert np.isnan([few["intercept"], few["slope"], few["in_the_large"]]).all()
    assert np.isfinite(few["observed_over_expected"]).all()
    p[4:12] = 1 - p[4:12]
    assert np.isfinite(list(line_intervals_of(Cases(y, p).weighted()).values())).all()


def test_intervals_of_the_line_by_hand():
    """The sandwich patient by patient; 60 patients, of whom fewer than those of a class have an image on the wrong side."""
    rng = np.random.default_rng(6)
    patient = np.repeat(np.arange(60), 2)
    p = expit(np.repeat(rng.normal(0, 2, 60), 2) + rng.normal(size=120))
    y = rng.random(120) < p
    line, found = (
        calibration_line_of(Cases(y, p).weighted()),
        line_intervals_of(Cases(y, p, patient=patient).weighted()),
    )
    design = np.column_stack([np.ones(120), logit(p)])
    mean = expit(design @ [line.intercept, line.slope])
    curvature = design.T @ (design * (mean * (1 - mean))[:, None])
    scores = np.array([(design * (y - mean)[:, None])[patient == k].sum(axis=0) for k in range(60)])
    covariance = np.linalg.inv(curvature) @ (60 / 59 * scores.T @ scores) @ np.linalg.inv(curvature)
    wrong = len(set(patient[(p > 0.5) != y]))
    assert wrong < min(len(set(patient[y])), len(set(patient[~y])))
    half = stats.t.ppf(0.975, wrong - 1) * np.sqrt(np.diag(covariance))
    for name, value, width in zip(("intercept", "slope"), (line.intercept, line.slope), half, strict=True):
        assert found[name] == pytest.approx((value - width, value + width), rel=1e-6)


def test_prior_correction_undoes_class_weights():
    rng = np.random.default_rng(1)
    p = rng.random(50)
    bent = expit(logit(p) + np.log(4.1))
    np.testing.assert_allclose(correct_prior(bent, 4.1), p, atol=1e-12)
    assert correct_prior([0.0, 1.0], 3).tolist() == [0, 1]
    with pytest.raises(InputError):
        correct_prior([0.5], 0)
