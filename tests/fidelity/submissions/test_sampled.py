"""Posterior samples as submissions."""

import numpy as np
import pytest

from retinabench.fidelity.submissions.sampled import KEPT_SAMPLES, submission_of, y_draws
from retinabench.fidelity.submissions.submission import About
from retinabench.fidelity.targets.registry import TARGETS


def test_draws_of_y_are_those_of_the_mixture():
    # Two components at -1 and 1 with std 0.5: mean 0, variance 1 + 0.25. Standard errors of 1,000 draws: 0.035 of
    # the mean, 0.05 of the variance; five of them.
    predicted = np.array([[[-1.0, 0.5]], [[1.0, 0.5]]], np.float32)
    draws = y_draws(predicted, np.random.default_rng(0))
    assert draws.shape == (1, 1000)
    assert draws.mean() == pytest.approx(0, abs=0.17)
    assert draws.var() == pytest.approx(1.25, abs=0.25)
    assert (draws[0, :500] < 0).mean() > 0.9  # every component gives its share


def test_many_samples_are_thinned_and_their_mean_is_that_of_all():
    values = np.random.default_rng(0).dirichlet(np.ones(2), (300, 4)).astype(np.float32)
    found = submission_of(values, TARGETS["logistic"], About(), 0)
    assert found.samples.shape == (KEPT_SAMPLES, 4, 2)
    assert found.probs == pytest.approx(values.mean(axis=0), abs=1e-6)
