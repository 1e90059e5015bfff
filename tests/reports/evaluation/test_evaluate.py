"""What the report resamples: the fast form for many weightings is the plain form of each, and shifts are differences."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from retinabench.core.errors import InputError
from retinabench.metrics.bootstrap import cluster_codes, replicate_weight
from retinabench.metrics.score_results import ScoreValue
from retinabench.reports.evaluation import evaluate
from retinabench.reports.evaluation.evaluate import evaluate_methods
from retinabench.reports.evaluation.evaluation import EvaluationSettings, MethodPredictions
from retinabench.reports.evaluation.set_statistics import SetPredictions
from support.fake_predictions import population, predictions


@pytest.fixture(scope="module")
def joint():
    case = SetPredictions.of(predictions("MC dropout", 0, population(60, 40)), "joint")
    assert case is not None
    return case


def weightings(case, rows=4):
    return np.random.default_rng(0).poisson(1.0, (rows, len(case))).astype(float)


def test_what_is_resampled_beside_the_scores_is_what_it_is_alone(joint):
    people = population(60, 40)
    found = evaluate_methods(
        [MethodPredictions.of("MC dropout", predictions("MC dropout", 0, people))],
        EvaluationSettings(bootstrap=5),
    )
    _, replicates = found.replicates[0, "joint"]
    codes, patients = cluster_codes(joint.cluster)
    for number in range(5):
        w = joint.cases.weighted(replicate_weight(codes, patients, 0, number))
        expected = [found.spec(name)(w) for name in found.replicated]
        np.testing.assert_allclose(replicates[0, number], expected, atol=1e-10)


def test_changes_are_shifted_minus_in_domain_by_scikit_learn(joint):
    changes, weight = evaluate._Changes(joint), weightings(joint)
    found = changes.rows(weight)
    for row, one in zip(found, weight, strict=True):
        parts = [np.flatnonzero((joint.domain == name) & (one > 0)) for name in ("in_domain", "shifted")]
        near, far = (roc_auc_score(joint.label[r], joint.prob[r], sample_weight=one[r]) for r in parts)
        assert row[0] == pytest.approx(far - near, abs=1e-12)
        near, far = (np.average((joint.prob[r] > 0.5) == joint.label[r], weights=one[r]) for r in parts)
        assert row[1] == pytest.approx(far - near, abs=1e-12)


def test_a_replicate_of_one_domain_alone_has_no_change(joint):
    weight = (joint.domain == "shifted").astype(float)
    assert np.isnan(evaluate._Changes(joint)(weight)).all()


def test_the_score_of_several_seeds_is_their_mean_with_its_standard_error():
    values = [ScoreValue(v, v - 0.1, v + 0.2, 1) for v in (0.6, 0.8)]
    found = evaluate._of_files(values, None)
    assert (found.value, found.low, found.high) == pytest.approx((0.7, 0.6, 0.9))
    assert found.error == pytest.approx(0.1)  # 0.1414 / √2


def test_files_of_one_method_are_its_seeds():
    one = predictions("MAP", 0, population(60, 30))
    with pytest.raises(InputError, match="a copy is not another seed"):
        evaluate_methods([MethodPredictions.of("a", [one, one])])


def test_the_leader_has_the_largest_area_on_the_last_set():
    people = population(60, 40)
    good = predictions("MC dropout", 0, people)
    rng = np.random.default_rng(0)
    poor = type(good)(good.image_id, good.label, rng.uniform(size=len(good)), domain=good.domain)
    methods = [MethodPredictions.of("poor", poor), MethodPredictions.of("good", good)]
    found = evaluate_methods(methods, EvaluationSettings(bootstrap=0))
    assert found.sets == ["in_domain", "shifted", "joint"]
    assert found.leading == "good"
    areas = [found.get(i, "joint", "referral_accuracy_area").value for i in (0, 1)]
    assert areas[1] > areas[0]
