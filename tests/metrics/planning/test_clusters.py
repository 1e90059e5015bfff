"""Design effects against simulated variances, and the correlation against its brute-force meaning."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.metrics.planning.clusters import Clusters, intra_patient_correlation


def test_design_effects_by_hand():
    two_eyes = Clusters(2, 0.5, 0.6)
    # Another image of the patient is positive with probability 0.1 + 0.6 * 0.9 = 0.64, negative with 0.9 + 0.6 * 0.1.
    assert two_eyes.positive_effect(0.1) == pytest.approx(1 + 0.64 * 0.5)
    assert two_eyes.negative_effect(0.1) == pytest.approx(1 + 0.96 * 0.5)
    assert two_eyes.effect == 1.5
    assert Clusters(1).effect == Clusters(2, 0).effect == 1
    assert Clusters(1.5, 0.5, 1, mates=3).effect == 2


@pytest.mark.parametrize(
    "values", [{"images_per_patient": 0.5}, {"correlation": 1.2}, {"disease_correlation": -1}]
)
def test_wrong_values_are_refused(values):
    with pytest.raises(InputError):
        Clusters(**values)


def test_the_correlation_of_equal_clusters_is_that_of_all_pairs():
    rng = np.random.default_rng(0)
    hit = rng.random((400, 3)) < rng.beta(2, 1, (400, 1))
    p = hit.mean()
    pairs = [np.mean((hit[:, a] - p) * (hit[:, b] - p)) for a in range(3) for b in range(a)]
    found = intra_patient_correlation(hit.ravel(), np.repeat(np.arange(400), 3))
    # The estimator divides the within-patient part by its degrees of freedom; the pair average does not: O(1/G).
    assert found == pytest.approx(np.mean(pairs) / (p * (1 - p)), abs=2e-3)


def test_the_correlation_of_one_image_per_patient_is_unknown():
    assert np.isnan(intra_patient_correlation([1, 0, 1], ["a", "b", "c"]))
    assert np.isnan(intra_patient_correlation([1, 1, 1, 1], ["a", "a", "b", "b"]))
    assert intra_patient_correlation([1, 1, 0, 0], ["a", "a", "b", "b"]) == 1


def test_the_design_effect_is_the_ratio_of_variances():
    """Sensitivity of two correlated eyes: simulated variance over that of independent eyes (seed 1, 4,000 studies).

    The standard error of a variance ratio over R studies is about sqrt(2 / R) = 2.2 %; the tolerance is four of them.
    """
    rng = np.random.default_rng(1)
    patients, prevalence, disease, right = 200, 0.3, 0.6, 0.5
    both = prevalence**2 + disease * prevalence * (1 - prevalence)
    kind = rng.choice(3, p=[both, 2 * (prevalence - both), 1 - 2 * prevalence + both], size=(4000, patients))
    positives = np.array([2, 1, 0])[kind]
    chance = rng.beta(0.8 / 1 * (1 / right - 1), 0.2 / 1 * (1 / right - 1), kind.shape)  # correlation `right`
    found = rng.binomial(positives, chance)
    shares = found.sum(axis=1) / positives.sum(axis=1)
    independent = 0.8 * 0.2 / (2 * patients * prevalence)
    effect = Clusters(2, right, disease).positive_effect(prevalence)
    assert shares.var() / independent == pytest.approx(effect, rel=0.09)
