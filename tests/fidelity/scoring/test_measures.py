from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import read_reference
from retinabench.fidelity.scoring import measures
from retinabench.fidelity.scoring.measures import COUNTS, EQUAL, NEARER, Estimate, crps, nearness, order_doubt
from retinabench.fidelity.submissions.submission import About, Submission
from retinabench.fidelity.targets.target import TARGETS
from support.evaluators import ENERGY, FUNDUS, GROUP, N, evaluator_of
from support.fake_reference import FakeReference, classified, regressed, softmax


@pytest.fixture
def points():
    """500 points of three classes, and probabilities that are right four times in five."""
    random = np.random.default_rng(0)
    truth = random.integers(0, 3, 500)
    named = np.where(random.random(500) < 0.8, truth, random.integers(0, 3, 500))
    return np.eye(3)[named] * 0.7 + 0.1, truth, random


def test_shuffled_rows_are_doubted_and_ordered_ones_are_not(points):
    probs, truth, random = points
    assert order_doubt(Submission(probs), probs, truth) == ""
    said = order_doubt(Submission(probs[random.permutation(500)]), probs, truth)
    assert said.startswith("its order is in doubt: an accuracy of 0.3")


def test_what_cannot_be_told_is_not_doubted(points):
    probs, truth, random = points
    shuffled = Submission(probs[random.permutation(500)])
    constant = Submission(np.tile([0.5, 0.3, 0.2], (500, 1)))
    assert order_doubt(constant, probs, truth) == ""
    assert order_doubt(shuffled, np.full((500, 3), 1 / 3), truth) == ""  # the reference itself knows nothing
    assert order_doubt(shuffled, probs, None) == ""
    counted = About(evidence={"predicted": ""}, content="0")
    assert order_doubt(Submission(shuffled.probs, about=counted), probs, truth) == ""


def test_groups_are_kinds_and_strengths():
    groups = measures.groups_of(FUNDUS, GROUP)
    assert list(groups) == ["all", "in_domain", "shifted", "corrupted", *(f"corrupted {k}" for k in range(1, 6))]
    assert [len(rows) for rows in groups.values()] == [150, 60, 40, 50, 10, 10, 10, 10, 10]


def test_the_interval_of_a_mean_is_as_wide_as_its_standard_error():
    # 4,000 replicates: the interval's half width over 1.96 standard errors is 1 within some 5 %.
    reference = classified(N, 5)
    submission = Submission(classified(N, 5, seed=2).probs)
    estimate = evaluator_of(FUNDUS, reference, replicates=4000).grade(submission)["in_domain"]["total_variation"]
    values = distances.total_variation(submission.probs, reference.probs)[:60]
    low, high = estimate.interval()
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / np.sqrt(60), rel=0.07)


R = 20_000  # the standard error of a variance of normal replicates is 1 %


def test_chains_add_the_jackknife_s_variance():
    reference = classified(50, 5)
    rows = {"all": np.arange(50)}
    probs = np.full((50, 5), 0.2)
    (changes,) = measures.chain_changes(Submission(probs), reference, rows).values()
    others = [np.delete(reference.chain_probs, k, axis=0).mean(axis=0) for k in range(4)]
    values = [np.abs(probs - one).sum(axis=1).mean() / 2 for one in others]
    assert changes["total_variation"] == pytest.approx(values - np.mean(values))
    weights = measures.chain_weights(reference, "t", R, 0)
    found = measures.with_chains(Estimate(0.3, np.zeros(R)), changes["total_variation"], weights)
    assert found.draws.var() == pytest.approx(3 / 4 * np.sum((values - np.mean(values)) ** 2), rel=0.04)
    assert found.value == 0.3


@pytest.mark.parametrize("count", [4, 10])
def test_intervals_over_seeds_are_those_of_student(count):
    values = np.random.default_rng(count).normal(size=count)
    shift = measures.seed_shifts({"x": values}, R, 0, "entry")["x"]
    error = values.std(ddof=1) / np.sqrt(count)
    wanted = {4: 3.182, 10: 2.262}[count]  # quantile .975 of Student's t with n - 1 degrees of freedom
    assert np.quantile(shift, 0.975) / error == pytest.approx(wanted, rel=0.05)
    assert measures.seed_shifts({"x": values[:1]}, R, 0, "entry") == {}


def test_crps_by_pairs():
    random = np.random.default_rng(0)
    draws, y = random.normal(size=(6, 40)), random.normal(size=6)
    pairs = np.abs(draws[:, :, None] - draws[:, None, :]).mean(axis=(1, 2))
    assert crps(draws, y) == pytest.approx(np.abs(draws - y[:, None]).mean(axis=1) - pairs / 2)


NEARNESS_N = 200


def test_noise_on_the_reference_is_marked():
    reference = classified(NEARNESS_N, 5)
    random = np.random.default_rng(0)
    noisy = np.abs(reference.probs + 0.002 * random.normal(size=(NEARNESS_N, 5)))
    assert nearness(Submission(noisy / noisy.sum(axis=1, keepdims=True)), reference) == NEARER


@pytest.mark.parametrize("chains", [[0], [1, 3], [0, 1, 2], [0, 1, 2, 3]])
def test_means_of_some_chains_are_equal(chains):
    reference = classified(NEARNESS_N, 5)
    mean = reference.chain_probs[chains].mean(axis=0)
    assert nearness(Submission(mean), reference) == EQUAL
    assert nearness(Submission(np.round(mean, 4)), reference) == EQUAL
    changed = mean.copy()
    changed[-1] = mean[-1][::-1]  # one point alone is other than in every subset
    assert nearness(Submission(changed), reference) != EQUAL


def test_means_of_the_samples_and_states_that_a_reference_keeps_are_equal():
    states = softmax(np.random.default_rng(3).normal(size=(8, 4, NEARNESS_N, 5))).astype(np.float16)
    reference = replace(classified(NEARNESS_N, 5), states=states)
    samples = reference.samples + 0.001 * np.arange(len(reference.samples))[:, None, None]  # other than the chains
    reference = replace(reference, samples=samples)
    for mean in (samples.mean(axis=0), samples[10:20].mean(axis=0), states[:, 2].mean(axis=0, dtype=float)):
        assert nearness(Submission(mean), reference) == EQUAL


def test_another_chain_of_the_same_posterior_is_not_equal_to_any_mean_of_sixteen():
    # Its error at each of 1,000 probabilities is a hundred times the tolerance: no subset fits them all by chance.
    reference = classified(NEARNESS_N, 5, chains=16, samples=64)
    other = classified(NEARNESS_N, 5, chains=17, samples=17 * 4).chain_probs
    assert nearness(Submission(other[16]), replace(reference, chain_probs=other[:16])) == ""
    many = classified(NEARNESS_N, 5, chains=20)
    assert nearness(Submission(many.chain_probs[19]), many) == EQUAL


def test_another_estimate_of_the_same_posterior_is_not_marked():
    # Exact inference is as far away as the error of the reference, 0.01 per class here.
    reference = classified(NEARNESS_N, 5)
    exact = reference.probs + 0.01 * np.random.default_rng(1).normal(size=(NEARNESS_N, 5))
    assert nearness(Submission(exact), reference) == ""


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_copied_draws_are_marked(share):
    reference = regressed(NEARNESS_N, draws=500)
    random = np.random.default_rng(0)
    own = random.normal(size=(NEARNESS_N, 1000))
    copied = int(1000 * share)
    own[:, :copied] = reference.draws[:, :copied]
    assert nearness(Submission(draws=own), reference) == EQUAL


def test_quantiles_of_the_reference_are_nearer_than_draws_could_be():
    reference = regressed(NEARNESS_N, draws=500)
    grid = (np.arange(1000) + 0.5) / 1000
    quantiles = np.quantile(reference.draws.astype(np.float64), grid, axis=1).T
    assert nearness(Submission(draws=quantiles), reference) == NEARER
    random = np.random.default_rng(0)  # the distribution of `regressed`, known exactly
    mean, std = random.normal(size=NEARNESS_N), 0.2 + random.random(NEARNESS_N)
    fresh = mean[:, None] + std[:, None] * np.random.default_rng(5).normal(size=(NEARNESS_N, 1000))
    assert nearness(Submission(draws=fresh), reference) == ""


def test_the_samples_of_the_reference_handed_in_are_equal():
    reference = classified(NEARNESS_N, 5)
    samples = reference.samples[::3]
    assert nearness(Submission(samples.mean(axis=0), samples.astype(np.float16)), reference) == EQUAL
    fresh = classified(NEARNESS_N, 5, seed=7).samples
    assert nearness(Submission(fresh.mean(axis=0), fresh), reference) == ""


def test_the_figures_of_fundus_are_those_that_were_found_independently():
    # Found with another program: .467, .215, .151 and .105. With 200 sets of one draw, 40 of five and 16 of more, whose standard
    # deviations are 6 to 9 % each, three standard errors are 2 to 6 %.
    fundus = TARGETS["fundus"]
    reference = read_reference(fundus, fundus.sha256)
    curve = measures.draw_curve(reference, np.arange(1000), 0.031, 0.0)
    known = dict(zip(COUNTS, curve.distance, strict=True))
    for count, distance in ((1, 0.467), (5, 0.215), (10, 0.151), (20, 0.105)):
        assert known[count] == pytest.approx(distance, rel=0.06)
    assert curve.draws(0.291) == pytest.approx(2.7, rel=0.1)  # MAP
    assert curve.draws(0.37) < 2  # mean field
    assert curve.most == pytest.approx(227, rel=0.15)  # the reference's own effective draws


@pytest.fixture
def conjugate():
    """Draws (n, 150) of x·w at 150 points, w ~ N(0, V) of 20 weights."""
    random = np.random.default_rng(0)
    x, root = random.normal(size=(N, 20)), random.normal(size=(20, 20)) / 4
    return lambda n: random.normal(size=(n, 20)) @ root @ x.T


# Of a single set of draws the number is uncertain by a third (20 weights), of the median of 40 by 7 %; up to half the reference's own draws.
@pytest.mark.parametrize("likelihood", ["categorical", "gaussian"])
def test_n_exact_draws_count_as_n_whatever_the_reference_s_own_error(conjugate, likelihood):
    chains, kept, noise = 4, 250, np.random.default_rng(1)
    found = {count: [] for count in (3, 30, 100, 400)}
    for _ in range(4):
        states = conjugate(chains * kept)
        if likelihood == "categorical":
            probs = two_classes(states)
            error = probs.std(axis=0) / np.sqrt(chains * kept)
            reference = FakeReference(probs.reshape(chains, kept, N, 2).mean(axis=1), probs, mcse=error)
        else:
            y = states + 0.3 * noise.normal(size=states.shape)
            kinds = np.stack([states, np.full_like(states, 0.3)], axis=-1).reshape(chains, kept, N, 2)
            draws = y.reshape(chains, kept, N).transpose(0, 2, 1)
            reference = FakeReference(chain_draws=draws, states=kinds, epistemic=states.std(axis=0))
        evaluator = evaluator_of(FUNDUS if likelihood == "categorical" else ENERGY, reference)
        for count, of_count in found.items():
            for _ in range(10):
                if likelihood == "categorical":
                    values = two_classes(conjugate(count)).mean(axis=0)
                else:
                    of_states = conjugate(count)[np.arange(1000) * count // 1000]
                    values = (of_states + 0.3 * noise.normal(size=of_states.shape)).T
                distance = distances.DISTANCE[likelihood](values, evaluator.predictive).mean()
                of_count.append(evaluator.draws.draws(distance))
    for count, of_count in found.items():
        assert np.median(of_count) == pytest.approx(count, rel=0.2)
    if likelihood == "categorical":  # of a regression the noise of y counts, too
        assert evaluator.draws.most == pytest.approx(chains * kept, rel=0.2)


def two_classes(logits):
    p = expit(logits)
    return np.stack([p, 1 - p], axis=-1)


def test_a_single_sample_has_no_epistemic_uncertainty():
    reference = classified(N, 5)
    submission = Submission(reference.probs, reference.probs[None])
    found = evaluator_of(FUNDUS, reference).grade(submission)["all"]
    assert np.isnan(found["epistemic_correlation"].value)
    truth = distances.epistemic(reference.samples)
    assert found["epistemic_error"].value == pytest.approx(truth.mean(), abs=1e-10)
    gap = distances.pairwise_disagreement(reference.samples).mean()
    assert found["disagreement_gap"].value == pytest.approx(gap)
