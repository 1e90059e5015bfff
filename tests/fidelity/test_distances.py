import json

import numpy as np
import pytest
from scipy.stats import norm, wasserstein_distance

from retinabench.fidelity import distances as d
from retinabench.fidelity.scoring.measures import close_regression
from support.fake_reference import softmax


@pytest.fixture
def golden(shared):
    folder = shared("golden", "fidelity")
    return np.load(folder / "golden_metrics.npz"), json.loads((folder / "golden_metrics.json").read_text())


def test_classification_equals_the_competition_s_kit(golden):
    arrays, values = golden
    cases = [name for name in values if name.startswith("cls_")]
    assert len(cases) == 9
    for case in cases:
        probs, reference = arrays[f"{case}__predictions"], arrays[f"{case}__reference"]
        assert d.agreement(probs, reference).mean() == values[case]["agreement"]
        # Case float32 differs in the 8th digit with the order of the sum.
        tolerance = 1e-7 if "float32" in case else 1e-12
        expected = pytest.approx(values[case]["total_variation_distance"], rel=tolerance)
        assert d.total_variation(probs, reference).mean() == expected


def test_regression_equals_the_competition_s_kit(golden):
    arrays, values = golden
    cases = [name for name in values if name.startswith("reg_")]
    assert len(cases) == 6
    for case in cases:
        draws, reference = arrays[f"{case}__predictions"], arrays[f"{case}__reference"]
        found = {name: one.terms.mean() for name, one in close_regression(draws, reference).items()}
        assert d.wasserstein(draws, reference) == pytest.approx(arrays[f"{case}__per_point_w1"], abs=1e-12)
        assert found["w2_kit"] == pytest.approx(values[case]["w2_distance"], abs=1e-12)
        if "OWN_mean_true_w2_by_sorting_rms" in values[case]:
            assert found["w2"] == pytest.approx(values[case]["OWN_mean_true_w2_by_sorting_rms"], abs=1e-12)
            literal = values[case]["OWN_paper_eq3_literal_sqrt_of_sum"]
            assert found["w2_as_printed"] == pytest.approx(literal, abs=1e-10)


@pytest.mark.parametrize(("s", "m"), [(1, 1), (7, 3), (10, 15), (64, 1)])
def test_unequal_sizes_equal_scipy(s, m):
    random = np.random.default_rng(s * 100 + m)
    left, right = random.normal(size=(5, s)), random.normal(1, 2, size=(5, m))
    truth = [wasserstein_distance(a, b) for a, b in zip(left, right, strict=True)]
    assert d.wasserstein(left, right) == pytest.approx(truth, abs=1e-12)


def test_the_true_w2_between_gaussians():
    # Quantile grids of N(0, 1) and N(1, 3²): W2² = 1² + 2²; a grid of 4,000 levels cuts the tails by less than 1 %.
    levels = (np.arange(4000) + 0.5) / 4000
    pair = norm.ppf(levels)[None], norm.ppf(levels, 1, 3)[None]
    assert d.wasserstein(*pair, 2) == pytest.approx(np.sqrt(5), rel=0.01)


def test_epistemic_and_disagreement_by_hand():
    samples = np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]])
    # Two sure samples that contradict each other: ln 2, and they always disagree. Two that say nothing: 0.
    assert d.epistemic(samples) == pytest.approx([np.log(2), 0])
    assert d.pairwise_disagreement(samples) == pytest.approx([1, 0])


def test_disagreement_equals_counting_pairs():
    samples = softmax(np.random.default_rng(0).normal(size=(9, 6, 3)))
    named = samples.argmax(axis=2)
    truth = [np.mean([named[i, n] != named[j, n] for i in range(9) for j in range(9) if i != j]) for n in range(6)]
    assert d.pairwise_disagreement(samples) == pytest.approx(truth)


def test_regret_is_zero_for_the_reference_and_counts_costs():
    costs = np.array([[0.0, 10.0], [1.0, 1.0]])  # answer 'healthy' and miss: 10; refer: 1
    reference = np.array([[0.95, 0.05], [0.5, 0.5]])
    assert d.decision_regret(reference, reference, costs) == pytest.approx([0, 0])
    # An overconfident answer never refers: it pays 10 * 0.5 instead of 1 at the second point.
    sure = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert d.decision_regret(sure, reference, costs) == pytest.approx([0, 4])
