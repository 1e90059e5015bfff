"""Scores of the grades against scikit-learn, brute force and hand values; the interval of kappa on patients of a known model."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, cohen_kappa_score, confusion_matrix, log_loss

import retinabench as rb
from retinabench.metrics.bootstrap import cluster_bootstrap
from retinabench.metrics.grades import GRADE_SCORES, Graded, GradedCases, grade_scores
from retinabench.metrics.weighted_images import Weighted
from support.graded import graded_patients


def cases_of(predictions, uncertainty=None):
    images = Graded.of(predictions)
    values = np.zeros(len(predictions)) if uncertainty is None else uncertainty
    return GradedCases(predictions, images, values, 0.5)


WHOLE = graded_patients(200, seed=1)
CALLED = WHOLE.grade_prob.argmax(axis=1)
TIMES = np.random.default_rng(2).integers(0, 4, len(WHOLE))  # a weight of 3 stands for three copies


@pytest.mark.parametrize("times", [np.ones(len(WHOLE), int), TIMES], ids=["once", "weighted"])
def test_scores_equal_those_of_scikit_learn(times):
    w = cases_of(WHOLE).weighted(times)
    true, called, prob = (np.repeat(one, times, axis=0) for one in (WHOLE.grade, CALLED, WHOLE.grade_prob))
    expected = {
        "quadratic_kappa": cohen_kappa_score(true, called, weights="quadratic"),
        "grade_accuracy": accuracy_score(true, called),
        "grade_error": np.abs(true - called).mean(),
        "rps": np.mean([(np.cumsum(p)[:4] - (y <= np.arange(4))) @ (np.cumsum(p)[:4] - (y <= np.arange(4))) / 4 for p, y in zip(prob, true, strict=True)]),
        "grade_nll": log_loss(true, prob, labels=range(5)),
        "severe_called_healthy": (called[true >= 3] == 0).mean(),
    }  # fmt: skip
    for name, value in expected.items():
        assert GRADE_SCORES[name](w) == pytest.approx(value, abs=1e-12), name


def test_replicates_are_the_scores_of_each_weighting():
    uncertainty = np.random.default_rng(0).random(len(WHOLE)).round(1)
    cases = cases_of(WHOLE, uncertainty)
    rows = np.random.default_rng(3).integers(0, 3, (4, len(WHOLE))).astype(float)
    for spec in GRADE_SCORES.values():
        each = [spec(Weighted(cases, row)) for row in rows]
        np.testing.assert_allclose(spec(Weighted(cases, rows)), each, rtol=1e-12)


def test_hand_values():
    """Three images: right, two grades too low, and severe called healthy."""
    prob = [[0.6, 0.4, 0, 0, 0], [0.5, 0.1, 0.4, 0, 0], [0.7, 0.1, 0, 0.2, 0]]
    found = rb.Predictions.from_softmax(prob, list("abc"), grades=[0, 2, 3])
    w = cases_of(found, np.array([1.0, 3.0, 2.0])).weighted()
    scores = {name: spec(w) for name, spec in GRADE_SCORES.items()}
    assert scores["grade_accuracy"] == pytest.approx(1 / 3)
    assert scores["grade_error"] == pytest.approx((0 + 2 + 3) / 3)
    assert scores["severe_called_healthy"] == 1
    assert scores["quadratic_kappa"] == pytest.approx(0)  # every image is called the same
    # F of each image less the step at its grade: .6 - 1, 1, 1, 1; .5, .6, 1 - 1, 1 - 1; .7, .8, .8, 1 - 1
    rps = (0.16 + 0.25 + 0.36 + 0.49 + 0.64 + 0.64) / 4 / 3
    assert scores["rps"] == pytest.approx(rps)
    assert scores["grade_nll"] == pytest.approx(-np.log([0.6, 0.4, 0.2]).mean())
    # b (2) goes first, then c (3): means of 0, 2, 3; of 0, 3; of 0
    assert scores["referral_grade_error_area"] == pytest.approx((5 / 3 + 3 / 2 + 0) / 3)


def test_the_curve_is_the_mean_error_of_the_retained_images():
    uncertainty = WHOLE.grade_prob.max(axis=1) * -1.0
    found = grade_scores(WHOLE, uncertainty, None, {}, bootstrap=0)
    error = np.abs(WHOLE.grade - CALLED)[np.argsort(uncertainty)]
    kept = np.arange(1, len(error) + 1)
    assert found.scores["referral_grade_error_area"].value == pytest.approx((np.cumsum(error) / kept).mean())
    assert found.curve["value"][10] == pytest.approx(error[:200].mean())  # half is referred
    np.testing.assert_array_equal(found.confusion, confusion_matrix(WHOLE.grade, CALLED, labels=range(5)))
    shares = np.array([[cell.value for cell in row] for row in found.shares])
    np.testing.assert_allclose(shares, confusion_matrix(WHOLE.grade, CALLED, labels=range(5), normalize="true"))


def test_images_without_a_grade_are_left_out_and_what_is_undefined_says_why():
    prob = [[0.6, 0.4, 0, 0, 0], [0.5, 0.1, 0.4, 0, 0], [0.7, 0.1, 0, 0.2, 0]]
    part = rb.Predictions.from_softmax(prob, list("abc"), [0, 1, 0], grades=[0, None, 0])
    found = rb.score(part, bootstrap=50)["in_domain"].grades
    assert found.images == 2
    kappa = found.scores["quadratic_kappa"]
    assert (np.isnan(kappa.value), kappa.why) == (True, "all images have, and are called, one grade")
    assert found.scores["severe_called_healthy"].why == "no image has grade 3 or 4"
    assert rb.score(part.take([1]), bootstrap=0)["in_domain"].grades is None


@pytest.mark.slow
def test_the_interval_of_kappa_holds_that_of_the_population():
    """300 studies of 100 patients: 95 % intervals hold it in 91.2 to 98 %, which is 3 standard errors around 95 %."""
    spec = GRADE_SCORES["quadratic_kappa"]
    truth = spec(cases_of(graded_patients(60_000, seed=0)).weighted())
    held = 0
    for study in range(300):
        cases = cases_of(graded_patients(100, seed=1 + study))
        whole = cases.weighted()

        def statistic(weight, cases=cases):
            return spec(Weighted(cases, weight))[:, None]

        draws = cluster_bootstrap(statistic, cases.patient, replicates=200, seed=study)
        ends = spec.interval.ends([whole], spec(whole), draws[:, 0], 0.95)
        held += ends.low <= truth <= ends.high
    assert 0.912 * 300 <= held <= 0.985 * 300


def test_kappa_has_no_interval_where_few_patients_have_a_referable_grade():
    kappa = rb.score(graded_patients(20, seed=0), bootstrap=30)["in_domain"].grades.scores["quadratic_kappa"]
    assert np.isfinite(kappa.value)
    assert (np.isnan(kappa.low), kappa.why[:35]) == (True, "no interval: fewer than 10 patients")
