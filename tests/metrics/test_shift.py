"""Scores between the domains, the balanced weights, and the tables by grade."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from retinabench.core.errors import InputError
from retinabench.metrics import shift
from retinabench.metrics.published.sets import balanced_rows, rebalanced_rows
from retinabench.metrics.score import score
from retinabench.metrics.sorted_images import Cases
from retinabench.predictions.table import Predictions


def predictions(n=300, seed=0, **more):
    rng = np.random.default_rng(seed)
    grade = rng.choice(5, n, p=[0.5, 0.2, 0.2, 0.06, 0.04])
    p = np.clip((grade / 4 + rng.normal(0, 0.3, n)), 0.001, 0.999)
    columns = {
        "image_id": [f"i{k:04d}" for k in range(n)],
        "label": grade >= 2,
        "probs": p,
        "grade": grade,
        "patient_id": [f"p{k // 2}" for k in range(n)],
        "domain": np.where(np.arange(n) < n * 0.8, "in_domain", "shifted"),
    }
    return Predictions(**(columns | more))


def test_ood_detection_against_sklearn():
    p = predictions()
    u, far = np.round(np.random.default_rng(1).random(len(p)), 1), p.domain == "shifted"
    w = Cases(p.label, p.prob, u, far).weighted()
    assert shift.ood_auroc_of(w) == pytest.approx(roc_auc_score(far, u), abs=1e-12)
    assert shift.ood_auprc_of(w) == pytest.approx(average_precision_score(far, u), abs=1e-12)
    assert np.isnan(shift.ood_auroc_of(Cases(p.label, p.prob, u).weighted()))


def test_balanced_weights_give_both_domains_the_same_mass():
    far = np.array([False] * 10 + [True] * 3)
    w = shift.balanced_weight(far)
    assert w[:10].tolist() == [1] * 10
    assert w[far].sum() == pytest.approx(10)
    times = np.array([2.0] * 10 + [0, 1, 3])
    w = shift.balanced_weight(far, times)
    assert w[far].sum() == pytest.approx(w[~far].sum()) == 20
    assert np.isnan(shift.balanced_weight(far, np.array([1.0] * 10 + [0, 0, 0]))).all()


def test_balanced_scores_are_averages_of_the_domains():
    """Accuracy of the balanced set is the mean of both accuracies: exact, not drawn."""
    sets = score(predictions(), bootstrap=0).to_dict()["sets"]
    for name in ("accuracy", "nll", "brier"):
        mean = (sets["in_domain"]["scores"][name]["value"] + sets["shifted"]["scores"][name]["value"]) / 2
        assert sets["balanced"]["scores"][name]["value"] == pytest.approx(mean, abs=1e-12)


def test_balanced_is_the_limit_of_random_duplication():
    """The published draw scatters around the exact weights: 300 seeds agree to three standard errors."""
    from retinabench.metrics.score import referral_curve

    p = predictions(260)
    u = -np.abs(p.prob - 0.5)
    far = p.domain == "shifted"
    exact = referral_curve(p.label, p.prob, u, "accuracy", weight=shift.balanced_weight(far)).area
    drawn = []
    for seed in range(300):
        rows = balanced_rows(far, seed)
        drawn.append(referral_curve(p.label[rows], p.prob[rows], u[rows], "accuracy").area)
    assert np.mean(drawn) == pytest.approx(exact, abs=3 * np.std(drawn) / np.sqrt(300) + 1e-4)


def test_grade_weights_match_the_proportions():
    grade = np.array([0, 0, 1, 2, 2, 2, 3, 4])
    w = shift.grade_weight(grade)
    share = np.bincount(grade, w) / w.sum()
    np.testing.assert_allclose(share, shift.EYEPACS_TEST, atol=1e-15)
    assert w.sum() == pytest.approx(8)
    part = shift.grade_weight([0, 0, 2], [0.5, 0.25, 0.25, 0, 0])
    assert part[:2].sum() == pytest.approx(2)
    with pytest.raises(InputError):
        shift.grade_weight([5])


def test_grade_weights_are_the_expectation_of_the_published_resampling():
    p = predictions(400)
    right = (p.prob > 0.5) == (p.label == 1)
    weight = shift.grade_weight(p.grade)
    drawn = [right[rebalanced_rows(p.grade, seed, 2000)].mean() for seed in range(200)]
    assert np.average(right, weights=weight) == pytest.approx(np.mean(drawn), abs=0.003)
