"""The measures against scipy, closed forms and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from retinabench.experiments.uci.scores import (
    matched_log_likelihood,
    mixture_log_likelihood,
    split_scores,
)


@pytest.fixture
def case():
    """20 points, 7 components, seed 0."""
    random = np.random.default_rng(0)
    return random.normal(3, 5, 20), random.normal(3, 5, (7, 20)), random.uniform(0.5, 4, (7, 20))


def test_the_mixture_is_a_density(case):
    target, means, variances = case
    brute = np.log(np.mean(stats.norm.pdf(target, means, np.sqrt(variances)), axis=0)).mean()
    assert mixture_log_likelihood(target, means, variances) == pytest.approx(brute, abs=1e-12)
    total, _ = integrate.quad(
        lambda y: math.exp(mixture_log_likelihood(np.array([y]), means[:, :1], variances[:, :1])),
        -60,
        60,
        limit=500,
    )
    assert total == pytest.approx(1, abs=1e-7)


def test_far_tails_do_not_underflow():
    # exp(-0.5 * 1e6) is 0 in double precision: the naive mean of densities has the logarithm of 0.
    found = mixture_log_likelihood(np.array([1000.0]), np.array([[0.0], [1.0]]), np.ones((2, 1)))
    expected = np.logaddexp(stats.norm.logpdf(1000, 0), stats.norm.logpdf(1000, 1)) - math.log(2)
    assert found == pytest.approx(expected, rel=1e-14)


def test_matched_moments_are_those_of_the_mixture(case):
    target, means, variances = case
    random = np.random.default_rng(1)
    for point in range(3):
        drawn = random.normal(means[:, point], np.sqrt(variances[:, point]), (200_000, 7)).ravel()
        one = matched_log_likelihood(target[[point]], means[:, [point]], variances[:, [point]])
        # 1.4 million draws: the standard errors of mean and variance move the density by some 0.003.
        assert one == pytest.approx(stats.norm.logpdf(target[point], drawn.mean(), drawn.std()), abs=0.015)
    assert matched_log_likelihood(target, means[:1], variances[:1]) == pytest.approx(
        mixture_log_likelihood(target, means[:1], variances[:1]), abs=1e-12
    )


def test_units_change_the_likelihood_by_their_logarithm(case):
    target, means, variances = case
    hours = split_scores(target, means, variances)
    minutes = split_scores(60 * target, 60 * means, 3600 * variances)
    for name in ("log_likelihood", "matched_log_likelihood"):
        assert getattr(minutes, name) == pytest.approx(getattr(hours, name) - math.log(60), abs=1e-10)
    assert minutes.rmse == pytest.approx(60 * hours.rmse)
    assert hours.rmse == pytest.approx(math.sqrt(((target - means.mean(axis=0)) ** 2).mean()))
