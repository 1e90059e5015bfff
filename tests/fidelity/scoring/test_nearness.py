"""Submissions that have used the reference are marked; independent ones are not."""

import numpy as np
import pytest

from retinabench.fidelity.scoring.nearness import EQUAL, NEARER, nearness
from retinabench.fidelity.submissions.submission import Submission
from support.fake_reference import classified, regressed

N = 200


def test_copies_of_probabilities_are_marked():
    reference = classified(N, 5)
    random = np.random.default_rng(0)
    assert nearness(Submission(reference.probs), reference) == EQUAL
    assert nearness(Submission(np.round(reference.probs, 4)), reference) == EQUAL
    noisy = np.abs(reference.probs + 0.002 * random.normal(size=(N, 5)))
    assert nearness(Submission(noisy / noisy.sum(axis=1, keepdims=True)), reference) == NEARER


def test_another_estimate_of_the_same_posterior_is_not_marked():
    # Exact inference is as far away as the error of the reference, 0.01 per class here.
    reference = classified(N, 5)
    exact = reference.probs + 0.01 * np.random.default_rng(1).normal(size=(N, 5))
    assert nearness(Submission(exact), reference) == ""


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_copied_draws_are_marked(share):
    reference = regressed(N, draws=500)
    random = np.random.default_rng(0)
    own = random.normal(size=(N, 1000))
    copied = int(1000 * share)
    own[:, :copied] = reference.draws[:, :copied]
    assert nearness(Submission(draws=own), reference) == EQUAL


def test_quantiles_of_the_reference_are_nearer_than_draws_could_be():
    reference = regressed(N, draws=500)
    grid = (np.arange(1000) + 0.5) / 1000
    quantiles = np.quantile(reference.draws.astype(np.float64), grid, axis=1).T
    assert nearness(Submission(draws=quantiles), reference) == NEARER
    random = np.random.default_rng(0)  # the distribution of `regressed`, known exactly
    mean, std = random.normal(size=N), 0.2 + random.random(N)
    fresh = mean[:, None] + std[:, None] * np.random.default_rng(5).normal(size=(N, 1000))
    assert nearness(Submission(draws=fresh), reference) == ""
