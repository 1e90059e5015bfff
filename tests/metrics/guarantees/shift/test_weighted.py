"""Reweighting: known density ratios, a variance equal to the bootstrap's, and limits that hold under the assumption."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from retinabench.metrics.guarantees.shift.weighted import Images, covariate_weights, distance_after


def sample(rng, patients, centre=0.0):
    """Two eyes with correlated logits around `centre`; P(label | logit) is the same for every centre. Images and labels."""
    x = np.repeat(rng.normal(centre, 0.8, patients), 2) + rng.normal(0, 0.6, 2 * patients)
    p = special.expit(1.5 * x)
    label = rng.random(len(p)) < special.expit(2 * x - 0.2)
    images = Images(p, 0.5 - np.abs(p - 0.5), np.repeat(np.arange(patients), 2), np.ones(len(p)))
    return images, label


def wrong(images, label, threshold=0.3):
    """num and den of the error among retained images."""
    kept = images.uncertainty <= threshold
    return kept & (label != (images.prob > 0.5)), kept


def test_weights_approach_the_known_density_ratio():
    """Logits N(0, 1) and N(0.5, 1) have the ratio exp(x / 2 - 1 / 8); 20,000 images each, seed 0."""
    rng = np.random.default_rng(0)
    x, new = rng.normal(0, 1, 20_000), rng.normal(0.5, 1, 20_000)
    sets = [Images(special.expit(z), np.abs(z), np.arange(20_000), np.ones(20_000)) for z in (x, new)]
    found = covariate_weights(*sets)
    inner = np.abs(x) < 1.5
    ratio = np.log(found.weight / np.exp(x / 2 - 1 / 8))[inner]
    assert np.abs(ratio).max() < 0.15  # the standard error of a logit there is about 0.02 to 0.04
    unweighted = distance_after(sets[0], np.ones(20_000), sets[1])
    assert unweighted == pytest.approx(2 * special.ndtr(0.25) - 1, abs=0.02)
    assert found.gap < 0.02


def test_equal_sets_get_equal_weights_and_the_plain_risk():
    images, label = sample(np.random.default_rng(1), 400)
    weights = covariate_weights(images, images)
    np.testing.assert_allclose(weights.weight, 1, rtol=1e-5)
    num, den = wrong(images, label)
    assert weights.risk(num, den).risk.value == pytest.approx(num.sum() / den.sum(), rel=1e-5)


def test_the_variance_is_that_of_a_bootstrap_of_both_sets():
    """Patients of both sets resampled 200 times, the weights estimated anew: the width differs by less than 20 %.

    The standard error of a bootstrap's standard error from 200 replicates is 5 %.
    """
    rng = np.random.default_rng(2)
    (old, label), (new, _) = sample(rng, 500), sample(rng, 400, 0.4)
    found = covariate_weights(old, new).risk(*wrong(old, label))

    def resampled(images):
        drawn = rng.integers(0, images.patient.max() + 1, images.patient.max() + 1)
        rows = np.stack([2 * drawn, 2 * drawn + 1], axis=1).reshape(-1)
        return rows, Images(images.prob[rows], images.uncertainty[rows], images.patient, images.weight)

    draws = []
    for _ in range(200):
        (rows, a), (_, b) = resampled(old), resampled(new)
        draws.append(covariate_weights(a, b).risk(*wrong(a, label[rows])).risk.value)
    width = found.risk.high - found.risk.low
    assert width == pytest.approx(2 * 1.96 * np.std(draws), rel=0.2)


def test_the_limit_holds_under_covariate_shift_and_the_plain_one_does_not():
    """300 studies, seed 3: the standard error of a share of 5 % is 1.3 points. Truth from 400,000 patients: 0.0005."""
    rng = np.random.default_rng(3)
    truth = np.divide(*map(np.sum, wrong(*sample(rng, 400_000, -0.8))))
    missed = above = 0
    for _ in range(300):
        (old, label), (new, _) = sample(rng, 400), sample(rng, 300, -0.8)
        num, den = wrong(old, label)
        found = covariate_weights(old, new).risk(num, den).risk
        missed += not found.low <= truth <= found.high
        above += num.sum() / den.sum() > 1.15 * truth
    assert missed / 300 <= 0.05 + 3 * 0.013
    assert above / 300 > 0.8  # without weights the risk is another


def test_sets_that_hardly_overlap_are_refused():
    rng = np.random.default_rng(4)
    (old, label), (new, _) = sample(rng, 300, -3), sample(rng, 300, 3)
    found = covariate_weights(old, new).risk(*wrong(old, label))
    assert np.isnan(found.risk.value)
    assert "still differ" in found.why
    assert found.to_dict()["risk"]["value"] is None
    few = covariate_weights(*(sample(rng, 30)[0] for _ in range(2)))
    assert "effective validation patients; 50 are needed" in few.risk(np.zeros(60), np.ones(60)).why


def test_the_threshold_is_the_largest_whose_upper_limit_is_below_the_goal():
    rng = np.random.default_rng(5)
    (old, label), (new, _) = sample(rng, 800), sample(rng, 800, 0.3)
    weights = covariate_weights(old, new)
    candidates = np.quantile(old.uncertainty, np.arange(5, 101, 5) / 100)

    def sums(threshold):
        return wrong(old, label, threshold)

    chosen = weights.threshold(candidates, sums, 0.1)
    high = [weights.risk(*sums(t), level=0.9).risk.high for t in candidates]
    assert chosen == max(t for t, end in zip(candidates, high, strict=True) if end <= 0.1)
    assert weights.threshold(candidates, sums, 1e-4) is None
