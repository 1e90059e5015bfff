"""Riley et al.'s criteria: the published example, the Fisher information of a sample, and simulated net benefit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit

from retinabench.metrics.planning import validation


def test_the_published_example_of_heart_valve_failure():
    """Prevalence 0.018, C-statistic 0.8, logit(p) normal with mean -5 and standard deviation 2.5.

    Published with the authors' package: 905, 4,544 (by a simulation of the predictors) and 4,252 participants.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    assert validation.images_for_observed_over_expected(0.018, 1.0) == pytest.approx(905, abs=1)
    assert validation.images_for_c_statistic(0.8, 0.018) == pytest.approx(4252, abs=1)
    assert validation.images_for_calibration_slope(-5 + 2.5 * nodes, weights) == pytest.approx(
        4544, rel=0.005
    )


def test_the_slope_follows_from_the_information_of_a_logistic_regression():
    rng = np.random.default_rng(0)
    x = rng.normal(-1, 1.5, 500)
    v = expit(x) * expit(-x)
    design = np.column_stack([np.ones(500), x])
    error = np.sqrt(np.linalg.inv((design * v[:, None]).T @ design)[1, 1])
    width = 2 * stats.norm.ppf(0.975) * error
    assert validation.images_for_calibration_slope(x, np.ones(500), width) == pytest.approx(500)


def test_the_binormal_predictors_are_calibrated():
    points, weight = validation.calibrated_predictors(0.9, 0.2)
    assert weight @ expit(points) == pytest.approx(0.2, abs=1e-6)  # O/E = 1
    half = len(points) // 2
    q = weight[:half].sum()
    assert q == pytest.approx(0.2)
    # In each class normal with distance d: their difference has the AUROC.
    gap = weight[:half] @ points[:half] / q - weight[half:] @ points[half:] / (1 - q)
    variance = weight[:half] @ points[:half] ** 2 / q - (weight[:half] @ points[:half] / q) ** 2
    assert stats.norm.cdf(gap / np.sqrt(2 * variance)) == pytest.approx(0.9)


def test_the_threshold_of_a_sensitivity():
    threshold, specificity = validation.threshold_of_sensitivity(0.9, 0.2, 0.85)
    d = np.sqrt(2) * stats.norm.ppf(0.9)
    positive, negative = (stats.norm(logit(0.2) + sign * d**2 / 2, d) for sign in (1, -1))
    assert positive.sf(logit(threshold)) == pytest.approx(0.85)
    assert negative.cdf(logit(threshold)) == pytest.approx(specificity)


def test_the_net_benefit_has_the_planned_standard_error():
    """Seed 1, 20,000 studies: a standard error is known to 0.5 %, the formula is a linearisation; tolerance 4 %."""
    rng = np.random.default_rng(1)
    sens, spec, q, t = 0.85, 0.9, 0.2, 0.15
    n = round(validation.images_for_net_benefit(sens, spec, q, t))
    table = rng.multinomial(n, [q * sens, q * (1 - sens), (1 - q) * (1 - spec), (1 - q) * spec], size=20_000)
    tp, fn, fp, _ = table.T
    standardised = (tp - fp * t / (1 - t)) / (tp + fn)
    assert standardised.std() * 2 * stats.norm.ppf(0.975) == pytest.approx(0.2, rel=0.04)


def test_the_c_statistic_solves_newcombes_formula():
    n = validation.images_for_c_statistic(0.9, 0.1, 0.08)
    c, q = 0.9, 0.1
    square = c * (1 - c) * (1 + (n / 2 - 1) * ((1 - c) / (2 - c) + c / (1 + c))) / (n**2 * q * (1 - q))
    assert 2 * stats.norm.ppf(0.975) * np.sqrt(square) == pytest.approx(0.08)
