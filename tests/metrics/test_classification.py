"""Weighted accuracy, discrimination and proper scores against scikit-learn; operating points against golden values."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from sklearn import metrics
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from retinabench.core.errors import InputError
from retinabench.metrics import classification
from retinabench.metrics.arrays import referral_curve
from retinabench.metrics.published import balanced_rows, rebalanced_rows
from retinabench.metrics.registry import SCORES
from retinabench.metrics.scoring import score
from retinabench.metrics.weighted_images import Cases, Weighted
from retinabench.predictions.table import Predictions
from support.repeated import weighted_and_repeated
from support.shared_inputs import answers, cases_of, images


@settings(max_examples=60, deadline=None)
@given(case=images())
def test_against_sklearn(case):
    y, p, _, w = case
    kept = w > 0
    args = {"sample_weight": w[kept]}
    weighted = Cases(y, p).weighted(w)
    yk, pk = y[kept], p[kept]
    oracle = metrics.accuracy_score(yk, pk > 0.5, **args)
    assert classification.accuracy_of(weighted) == pytest.approx(oracle, abs=1e-12)
    assert classification.brier_of(weighted) == pytest.approx(np.average((p - y) ** 2, weights=w), abs=1e-12)
    clipped = np.clip(pk, 1e-15, 1 - 1e-15)
    assert classification.nll(y, p, w) == pytest.approx(metrics.log_loss(yk, clipped, labels=[0, 1], **args), abs=1e-12)
    if len(set(yk)) == 2:
        assert classification.auroc(y, p, w) == pytest.approx(metrics.roc_auc_score(yk, pk, **args), abs=1e-12)
        oracle = metrics.average_precision_score(yk, pk, **args)
        assert classification.auprc_of(weighted) == pytest.approx(oracle, abs=1e-12)
        roc = classification.roc_curve(y, p, w)
        fpr, tpr, thresholds = metrics.roc_curve(yk, pk, drop_intermediate=False, **args)
        held = np.concatenate(([True], np.diff(roc.false_positive_rate + roc.sensitivity) > 0))
        np.testing.assert_allclose(roc.false_positive_rate[held], fpr, atol=1e-12)
        np.testing.assert_allclose(roc.sensitivity[held], tpr, atol=1e-12)
        np.testing.assert_array_equal(roc.threshold[held], thresholds)
    else:
        assert np.isnan(classification.auroc(y, p, w))
        with pytest.raises(InputError, match="both classes"):
            classification.roc_curve(y, p, w)


def test_a_roc_curve_is_read_on_its_chords():
    roc = classification.roc_curve([0, 0, 1, 1, 0, 1], [0.1, 0.4, 0.35, 0.8, 0.5, 0.9])
    last = np.append(np.diff(roc.false_positive_rate) > 0, True)
    for x, y in zip(roc.false_positive_rate[last], roc.sensitivity[last], strict=True):
        assert classification.sensitivity_on_chords(roc, [x])[0] == pytest.approx(y)
    grid = np.linspace(0, 1, 51)
    found = classification.sensitivity_on_chords(roc, grid)
    assert found[-1] == 1
    assert (np.diff(found) >= -1e-12).all()
    tied = classification.roc_curve([0, 1], [0.5, 0.5])  # one chord from (0, 0) to (1, 1)
    np.testing.assert_allclose(classification.sensitivity_on_chords(tied, grid), grid, atol=1e-12)
    # A chord from (0, 1/2) to (1/2, 1), and a jump whose upper end counts.
    chord = classification.roc_curve([0, 0, 1, 1], [0.1, 0.5, 0.5, 0.9])
    jump = classification.roc_curve([0, 1], [0.1, 0.9])
    assert classification.sensitivity_on_chords(chord, [0.25]) == pytest.approx([0.75])
    assert classification.sensitivity_on_chords(jump, [0.0, 0.25]).tolist() == [1, 1]


def test_golden_scalars():
    y, p, _ = cases_of("n400")
    weighted = Cases(y, p).weighted()
    truth = answers("reference_outputs")["n400"]
    assert classification.auroc(y, p) == pytest.approx(truth["auroc"], abs=1e-12)
    assert classification.auprc_of(weighted) == pytest.approx(truth["average_precision"], abs=1e-12)
    assert classification.brier_of(weighted) == pytest.approx(truth["brier"], abs=1e-12)
    assert classification.nll(y, p) == pytest.approx(truth["nll"], abs=1e-12)


def test_one_class_is_undefined_not_zero():
    w = Cases([1, 1], [0.2, 0.9]).weighted()
    assert np.isnan(classification.auroc_of(w))
    assert np.isnan(classification.specificity_of(w))
    assert classification.sensitivity_of(w) == 0.5
    assert classification.auprc_of(w) == 1.0
    assert np.isnan(classification.auprc_of(Cases([0, 0], [0.2, 0.9]).weighted()))


def test_bad_shapes_and_values_are_refused():
    for args in (([0, 1], [0.5], None), ([0, 2], [0.5, 0.5], None), ([0, 1], [0.5, 1.5], None)):
        with pytest.raises(InputError):
            Cases(*args)
    with pytest.raises(InputError):
        Cases([0, 1], [0.5, 0.5], [np.nan, 1])


def test_a_saturated_mistake_costs_34_nats():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert classification.nll([1], [0.0]) == pytest.approx(-np.log(1e-15))
        assert classification.nll([0], [0.0]) == pytest.approx(0, abs=1e-14)


def predictions(n=300, seed=0, **more):
    rng = np.random.default_rng(seed)
    grade = rng.choice(5, n, p=[0.5, 0.2, 0.2, 0.06, 0.04])
    p = np.clip((grade / 4 + rng.normal(0, 0.3, n)), 0.001, 0.999)
    columns = {
        "image_id": [f"i{k:04d}" for k in range(n)], "label": grade >= 2, "probs": p, "grade": grade,
        "patient_id": [f"p{k // 2}" for k in range(n)],
        "domain": np.where(np.arange(n) < n * 0.8, "in_domain", "shifted"),
    }  # fmt: skip
    return Predictions(**(columns | more))


def test_balanced_weights_give_both_domains_the_same_mass():
    far = np.array([False] * 10 + [True] * 3)
    w = classification.balanced_weight(far)
    assert w[:10].tolist() == [1] * 10
    assert w[far].sum() == pytest.approx(10)
    times = np.array([2.0] * 10 + [0, 1, 3])
    w = classification.balanced_weight(far, times)
    assert w[far].sum() == pytest.approx(w[~far].sum()) == 20
    assert np.isnan(classification.balanced_weight(far, np.array([1.0] * 10 + [0, 0, 0]))).all()


def test_balanced_scores_are_averages_of_the_domains():
    """Accuracy of the balanced set is the mean of both accuracies: exact, not drawn."""
    sets = score(predictions(), bootstrap=0).to_dict()["sets"]
    for name in ("accuracy", "nll", "brier"):
        mean = (sets["in_domain"]["scores"][name]["value"] + sets["shifted"]["scores"][name]["value"]) / 2
        assert sets["balanced"]["scores"][name]["value"] == pytest.approx(mean, abs=1e-12)


def test_balanced_is_the_limit_of_random_duplication():
    """The published draw scatters around the exact weights: 300 seeds agree to three standard errors."""
    p = predictions(260)
    u = -np.abs(p.prob - 0.5)
    far = p.domain == "shifted"
    exact = referral_curve(p.label, p.prob, u, "accuracy", weight=classification.balanced_weight(far)).area
    drawn = []
    for seed in range(300):
        rows = balanced_rows(far, seed)
        drawn.append(referral_curve(p.label[rows], p.prob[rows], u[rows], "accuracy").area)
    assert np.mean(drawn) == pytest.approx(exact, abs=3 * np.std(drawn) / np.sqrt(300) + 1e-4)


def test_grade_weights_match_the_proportions():
    grade = np.array([0, 0, 1, 2, 2, 2, 3, 4])
    w = classification.grade_weight(grade)
    share = np.bincount(grade, w) / w.sum()
    np.testing.assert_allclose(share, classification.EYEPACS_TEST, atol=1e-15)
    assert w.sum() == pytest.approx(8)
    part = classification.grade_weight([0, 0, 2], [0.5, 0.25, 0.25, 0, 0])
    assert part[:2].sum() == pytest.approx(2)
    with pytest.raises(InputError):
        classification.grade_weight([5])


def test_grade_weights_are_the_expectation_of_the_published_resampling():
    p = predictions(400)
    right = (p.prob > 0.5) == (p.label == 1)
    weight = classification.grade_weight(p.grade)
    drawn = [right[rebalanced_rows(p.grade, seed, 2000)].mean() for seed in range(200)]
    assert np.average(right, weights=weight) == pytest.approx(np.mean(drawn), abs=0.003)


def ece(forecast, observed):
    """Bins (k / 15, (k + 1) / 15], straight from the definition."""
    bins = np.ceil(np.round(forecast * 15, 9)).astype(int)
    return sum(abs((observed - forecast)[bins == k].sum()) for k in range(16)) / len(forecast)


FORMULAS = {
    "accuracy": lambda y, p: metrics.accuracy_score(y, p > 0.5), "nll": metrics.log_loss,
    "brier": metrics.brier_score_loss, "sensitivity": lambda y, p: metrics.recall_score(y, p > 0.5),
    "specificity": lambda y, p: metrics.recall_score(y, p > 0.5, pos_label=0),
    "ece_positive_class": lambda y, p: ece(p, y),
    "ece_top_label": lambda y, p: ece(np.maximum(p, 1 - p), (p > 0.5) == y),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_a_weight_is_a_number_of_copies(name):
    w, copies = weighted_and_repeated()
    expected = [FORMULAS[name](y, p) for y, p, *_ in copies]
    np.testing.assert_allclose(SCORES[name](w), expected, rtol=1e-12)


def test_of_the_probability_and_of_the_uncertainty():
    w, copies = weighted_and_repeated()
    for name, oracle, columns in (
        ("auroc", roc_auc_score, (0, 1)),
        ("auprc", average_precision_score, (0, 1)),
        ("ood_auroc", roc_auc_score, (3, 2)),
        ("ood_auprc", average_precision_score, (3, 2)),
    ):
        expected = [oracle(copy[columns[0]], copy[columns[1]]) for copy in copies]
        np.testing.assert_allclose(SCORES[name](w), expected, rtol=1e-12, err_msg=name)


def test_the_fpr_counts_shifted_images_below_the_uncertainty_that_holds_95_percent():
    w, copies = weighted_and_repeated()
    expected = []
    for _, _, uncertainty, shifted in copies:
        inside = np.sort(uncertainty[shifted == 0])
        limit = inside[math.ceil(0.95 * len(inside) - 1e-9) - 1]
        expected.append((uncertainty[shifted == 1] <= limit).mean())
    np.testing.assert_allclose(SCORES["ood_fpr95"](w), expected, rtol=1e-12)


def test_one_class_and_one_domain_are_undefined():
    cases = Cases([1, 1, 0], [0.2, 0.5, 0.7])
    w = Weighted(cases, np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])[:, cases.order])
    assert np.isnan(classification.auroc_of(w)).tolist() == [True, False]
    assert np.isnan(classification.ood_auroc_of(w)).all()
    assert np.isnan(classification.ood_auprc_of(w)).all()
    assert np.isnan(classification.ood_fpr95_of(w)).all()


def test_the_sensitivity_within_a_rate_is_the_highest_of_scikit_learns_steps():
    rng = np.random.default_rng(4)
    y, p, rates = rng.integers(0, 2, 80), rng.uniform(0.05, 0.95, 80), np.linspace(0, 1, 13)
    false, hit, _ = metrics.roc_curve(y, p, drop_intermediate=False)
    expected = [hit[false <= rate + 1e-12].max() for rate in rates]
    np.testing.assert_allclose(classification.sensitivity_within(Cases(y, p).weighted(), rates), expected)
    one_class = Cases(np.zeros(3), [0.1, 0.2, 0.3]).weighted()
    assert np.isnan(classification.sensitivity_within(one_class, np.array([0.5]))).all()


def test_rates_at_a_fixed_other_rate_and_the_partial_area_are_scikit_learns():
    """Weights, ties and both classes; of 40 weightings at once, too. Seed 11."""
    rng = np.random.default_rng(11)
    y, p = rng.integers(0, 2, 150), rng.random(150).round(1)
    weight = rng.integers(0, 3, (40, 150)).astype(float)
    many = Cases(y, p).weighted(weight)
    names = ("sensitivity_at_specificity_80", "specificity_at_sensitivity_90", "partial_auroc_80", "partial_auroc_90")
    found = {name: SCORES[name](many) for name in names}
    for k, row in enumerate(weight):
        false, hit, _ = roc_curve(y, p, sample_weight=row, drop_intermediate=False)
        assert found["sensitivity_at_specificity_80"][k] == pytest.approx(hit[false <= 0.2 + 1e-12].max())
        assert found["specificity_at_sensitivity_90"][k] == pytest.approx(1 - false[hit >= 0.9 - 1e-12].min())
        for percent in (80, 90):
            expected = roc_auc_score(y, p, sample_weight=row, max_fpr=1 - percent / 100)
            assert found[f"partial_auroc_{percent}"][k] == pytest.approx(expected, abs=1e-12)
    one = Cases(y, p).weighted()
    for of, fixed in (("sensitivity", "specificity"), ("specificity", "sensitivity")):
        success, mass = classification.counts_at(one, 0.85, of)
        assert (success * mass).sum() / mass.sum() == pytest.approx(SCORES[f"{of}_at_{fixed}_85"](one))
    lone = Cases(np.ones(3), np.array([0.1, 0.2, 0.3])).weighted()
    assert all(np.isnan(SCORES[name](lone)) for name in names)
