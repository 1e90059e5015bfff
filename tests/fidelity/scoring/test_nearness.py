"""Submissions that have used the reference are marked; independent ones are not."""

from dataclasses import replace

import numpy as np
import pytest

from retinabench.fidelity.scoring.nearness import EQUAL, NEARER, nearness
from retinabench.fidelity.submissions.submission import Submission
from support.fake_reference import classified, regressed, softmax

N = 200


def test_copies_of_probabilities_are_marked():
    reference = classified(N, 5)
    random = np.random.default_rng(0)
    assert nearness(Submission(reference.probs), reference) == EQUAL
    assert nearness(Submission(np.round(reference.probs, 4)), reference) == EQUAL
    noisy = np.abs(reference.probs + 0.002 * random.normal(size=(N, 5)))
    assert nearness(Submission(noisy / noisy.sum(axis=1, keepdims=True)), reference) == NEARER


@pytest.mark.parametrize("chains", [[0], [1, 3], [0, 1, 2]])
def test_means_of_some_chains_are_equal(chains):
    reference = classified(N, 5)
    mean = reference.chain_probs[chains].mean(axis=0)
    assert nearness(Submission(mean), reference) == EQUAL
    assert nearness(Submission(np.round(mean, 4)), reference) == EQUAL
    changed = mean.copy()
    changed[-1] = mean[-1][::-1]  # one point alone is other than in every subset
    assert nearness(Submission(changed), reference) != EQUAL


def test_means_of_the_samples_and_states_that_a_reference_keeps_are_equal():
    states = softmax(np.random.default_rng(3).normal(size=(8, 4, N, 5))).astype(np.float16)
    reference = replace(classified(N, 5), states=states)
    samples = (
        reference.samples + 0.001 * np.arange(len(reference.samples))[:, None, None]
    )  # other than the chains
    reference = replace(reference, samples=samples)
    for mean in (samples.mean(axis=0), samples[10:20].mean(axis=0), states[:, 2].mean(axis=0, dtype=float)):
        assert nearness(Submission(mean), reference) == EQUAL


def test_another_chain_of_the_same_posterior_is_not_equal_to_any_mean_of_sixteen():
    # Its error at each of 1,000 probabilities is a hundred times the tolerance: no subset fits them all by chance.
    reference = classified(N, 5, chains=16, samples=64)
    other = classified(N, 5, chains=17, samples=17 * 4).chain_probs
    assert nearness(Submission(other[16]), replace(reference, chain_probs=other[:16])) == ""
    many = classified(N, 5, chains=20)
    assert nearness(Submission(many.chain_probs[19]), many) == EQUAL


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


def test_draws_of_one_chain_are_equal():
    reference = regressed(N, draws=1000)
    assert nearness(Submission(draws=reference.chain_draws[2]), reference) == EQUAL


def test_quantiles_of_the_reference_are_nearer_than_draws_could_be():
    reference = regressed(N, draws=500)
    grid = (np.arange(1000) + 0.5) / 1000
    quantiles = np.quantile(reference.draws.astype(np.float64), grid, axis=1).T
    assert nearness(Submission(draws=quantiles), reference) == NEARER
    random = np.random.default_rng(0)  # the distribution of `regressed`, known exactly
    mean, std = random.normal(size=N), 0.2 + random.random(N)
    fresh = mean[:, None] + std[:, None] * np.random.default_rng(5).normal(size=(N, 1000))
    assert nearness(Submission(draws=fresh), reference) == ""


def test_rounded_copies_of_a_chain_are_nearer_than_draws_could_be():
    reference = replace(classified(N, 5), mcse=np.full((N, 5), 0.005))
    for chain in reference.chain_probs:
        for copy in (chain.astype(np.float16).astype(float), np.round(chain, 3)):
            assert nearness(Submission(copy / copy.sum(axis=1, keepdims=True)), reference) == NEARER


def test_the_samples_of_the_reference_handed_in_are_equal():
    reference = classified(N, 5)
    samples = reference.samples[::3]
    assert nearness(Submission(samples.mean(axis=0), samples.astype(np.float16)), reference) == EQUAL
    fresh = classified(N, 5, seed=7).samples
    assert nearness(Submission(fresh.mean(axis=0), fresh), reference) == ""


def test_rounded_draws_and_draws_in_another_order_are_equal():
    reference, random = regressed(N, draws=500), np.random.default_rng(1)
    thinned = random.permuted(reference.draws.astype(np.float64), axis=1)[:, :1000]
    assert nearness(Submission(draws=np.round(thinned, 4)), reference) == EQUAL
    assert nearness(Submission(draws=thinned + 1e-5 * random.normal(size=thinned.shape)), reference) == EQUAL
