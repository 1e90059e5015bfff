"""The replicates of a set: how its slow area is approximated."""

from __future__ import annotations

import numpy as np
import pytest

import retinabench as rb
from metrics.test_shift import predictions
from retinabench.metrics.inference.bootstrap import cluster_bootstrap
from retinabench.metrics.registry import SCORES
from retinabench.metrics.score_spec import ScoreSpec
from retinabench.metrics.selective import referral_curves
from retinabench.metrics.sets import SetEvaluator, image_sets


def test_replicates_of_the_auprc_area_are_those_of_every_count():
    """They see 25 counts and are moved by the whole set's difference: their
    root mean square distance from the exact ones is below 5 % of the spread, which widens an interval by 0.1 %."""
    rng = np.random.default_rng(3)
    severity = np.repeat(rng.normal(-0.6, 1.2, 200), 2) + rng.normal(0, 0.3, 400)
    prob = 1 / (1 + np.exp(-(2 * severity + rng.normal(0, 1.5, 400))))
    p = rb.Predictions(np.arange(400), severity > 0, prob, patient_id=np.arange(400) // 2)
    (images,) = image_sets(p, -np.abs(prob - 0.5))
    quick = cluster_bootstrap(
        SetEvaluator(images, [SCORES["referral_auprc_area"]]), images.cluster, replicates=40
    )
    exact = cluster_bootstrap(
        lambda w: np.array([referral_curves.area_of(images.weigh(w), "auprc")]), images.cluster, replicates=40
    )
    assert np.sqrt(np.mean((quick - exact) ** 2)) < 0.05 * exact.std()


def test_a_moved_coarse_area_never_passes_1():
    """With an exact value of 1, half of the moved replicates would lie above it."""
    rng = np.random.default_rng(0)
    label = (rng.random(300) < 0.3).astype(int)
    prob = 1 / (1 + np.exp(-(2 * label - 1 + rng.normal(0, 1.5, 300))))
    test = rb.Predictions([f"i{k}" for k in range(300)], label, prob)
    evaluator = SetEvaluator(
        image_sets(test, prob * (1 - prob))[0], [SCORES["referral_auprc_area"]], np.ones(1)
    )
    draws = np.array(
        [evaluator(rng.multinomial(300, np.full(300, 1 / 300)).astype(float))[0] for _ in range(40)]
    )
    assert draws.max() == 1
    assert draws.min() < 1


def mean_prob(w):
    return w.mean(w.cases.prob)


@pytest.mark.parametrize("number", range(4))
def test_many_weightings_at_once_are_one_after_the_other(number):
    """In every set, for scores with a batched form and for a plug-in's without; the balanced set may lose a domain."""
    p = predictions()
    images = image_sets(p, -np.round(np.abs(p.prob - 0.5), 2))[number]
    plain = ScoreSpec("mean_prob", "Mean probability", "", "", 1, mean_prob)
    evaluator = SetEvaluator(images, [*images.scores, plain])
    n = len(images)
    weight = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), 4).astype(float)
    weight[1, images.shifted] = 0 if number == 3 else weight[1, images.shifted]
    one_by_one = np.array([evaluator(row) for row in weight])
    np.testing.assert_allclose(evaluator.rows(weight), one_by_one, rtol=1e-12, atol=1e-12)
    assert np.isnan(one_by_one[1]).all() == (number == 3)
