from dataclasses import replace

import numpy as np
import pytest

import retinabench as rb
from retinabench.metrics.registry import SCORES
from retinabench.metrics.rejection import compare_uncertainties
from retinabench.metrics.weighted_images import Cases

N, K = 400, 5


def model(fold=True):
    random = np.random.default_rng(3)
    label = random.random(N) < 0.3
    prob = np.clip(0.35 + 0.3 * label + random.normal(0, 0.2, N), 0, 1)
    wrong = (prob > 0.5) != label
    return rb.Predictions(
        [f"i{k}" for k in range(N)], label, prob, patient_id=[f"p{k // 2}" for k in range(N)],
        fold=np.arange(N) % K if fold else None,
        uncertainties={"good": wrong + random.random(N), "poor": 0.2 * wrong + random.random(N)},
    )  # fmt: skip


def test_without_folds_the_numbers_are_those_of_score_and_compare():
    predictions = model(fold=False)
    found = compare_uncertainties(predictions, bootstrap=200, seed=1)["in_domain"]
    good, poor = (replace(predictions, uncertainty=predictions.uncertainties[name]) for name in ("good", "poor"))
    both = rb.compare(good, poor, bootstrap=200, seed=1, scores=["rc_index"])["in_domain"]["rc_index"]
    one = rb.score(good, bootstrap=200, seed=1)["in_domain"]["rc_index"]
    first, second = found.uncertainties.values()
    assert (first.index, first.low, first.high) == (one.value, one.low, one.high)
    assert second.difference[:4] == (both.difference, both.low, both.high, both.p)
    assert second.difference.difference > 0
    controls = rb.score(good, bootstrap=0)["in_domain"].controls
    assert found.oracle == pytest.approx(controls["oracle"]["rc_index"], abs=1e-12)
    assert found.scores == {}


def test_each_fold_is_ordered_by_itself():
    """Folds whose uncertainties have other scales: all images in one order would refer whole folds."""
    predictions = model()
    scaled = {name: values * 10.0**predictions.fold for name, values in predictions.uncertainties.items()}
    one = compare_uncertainties(predictions, bootstrap=50)["in_domain"]
    other = compare_uncertainties(replace(predictions, uncertainties=scaled), bootstrap=50)["in_domain"]
    assert one.to_dict()["uncertainties"] == other.to_dict()["uncertainties"]
    for name, found in one.uncertainties.items():
        rows = [np.flatnonzero(predictions.fold == k) for k in range(K)]
        columns = predictions.label, predictions.prob, predictions.uncertainties[name]
        of_folds = [SCORES["rc_index"](Cases(*(one[r] for one in columns)).weighted()) for r in rows]
        assert found.folds.mean == pytest.approx(np.mean(of_folds), abs=1e-12)
        assert found.index == pytest.approx(found.folds.mean, abs=1e-12)
        assert found.vertical == pytest.approx(found.folds.mean, abs=1e-12)


@pytest.mark.slow
def test_intervals_over_folds_hold_the_true_index():
    """Uncertainties of a known quality: 95 % intervals of 100 data sets hold the index of 200,000 images."""

    def drawn(n, seed):
        random = np.random.default_rng(seed)
        wrong = random.random(n) < 0.2
        values = {"a": 0.5 * wrong + random.random(n)}
        prob = np.where(wrong, 0.9, 0.1)
        return rb.Predictions(np.arange(n), np.zeros(n, int), prob, fold=np.arange(n) % K, uncertainties=values)

    truth = compare_uncertainties(drawn(200_000, 0), bootstrap=0)["in_domain"].uncertainties["a"].index
    held = 0
    for seed in range(1, 101):
        one = compare_uncertainties(drawn(300, seed), bootstrap=100)["in_domain"].uncertainties["a"]
        held += one.low <= truth <= one.high
    assert held >= 86  # 0.95 less four standard errors


def test_a_fold_of_one_class_makes_the_mean_undefined_and_nothing_else():
    predictions = model()
    fold = np.where(predictions.label == 1, np.arange(N) % 4, np.arange(N) % K)
    found = compare_uncertainties(replace(predictions, fold=fold), bootstrap=0)["in_domain"]
    assert np.isnan(found.scores["auroc"].mean)
    assert np.isfinite(found.scores["accuracy"].mean)
    assert np.isfinite(found.uncertainties["good"].index)
