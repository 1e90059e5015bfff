"""Scores of the grades against scikit-learn, brute force and hand values; the interval of kappa on patients of a known model."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, cohen_kappa_score, confusion_matrix, log_loss

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.grades import GRADE_SCORES, Graded, GradedCases, entering_mass, grade_scores, grade_sets
from retinabench.metrics.weighted_images import Weighted, cluster_bootstrap
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


def test_the_mass_that_enters_before_each_grade():
    found = entering_mass(np.array([[0.1, 0.2, 0.4, 0.25, 0.05], [0.4, 0.3, 0.2, 0.1, 0.0], [0.2] * 5]))
    # 2, 3, 1, 0, 4; the first grade and upwards; of equal neighbours the more severe one first
    expected = [[0.85, 0.65, 0, 0.4, 0.95], [0, 0.4, 0.7, 0.9, 1.0], [0, 0.2, 0.4, 0.6, 0.8]]
    np.testing.assert_allclose(found, expected, atol=1e-15)


def several(severity):
    """Diseased patients have four images, the others one: images are not a sample of one image per patient."""
    return np.where(severity > 0.6, 4, 1)


WEIGHT = {
    "alike": lambda grade, candidate: np.ones(len(grade)),
    "severity": lambda grade, candidate: 1.0 + grade,
    "grade": lambda grade, candidate: (np.minimum(grade, 3) == min(candidate, 3)).astype(float),
}


@pytest.mark.parametrize("weighting", WEIGHT)
def test_a_grade_is_in_the_set_where_its_conformal_p_value_is_large(weighting):
    found = graded_patients(120, seed=5, images=several, validation=60)
    chosen = Graded.of(found.select(split="validation"))
    score = entering_mass(chosen.prob)[np.arange(len(chosen.grade)), chosen.grade]
    images = np.bincount(chosen.patient)[chosen.patient]
    sets, mass = grade_sets(found, weighting, 0.8), entering_mass(found.grade_prob)
    for row in np.flatnonzero(found.split == "test"):
        inside = []
        for candidate in range(5):
            weight = WEIGHT[weighting](chosen.grade, candidate)
            largest = 5.0 if weighting == "severity" else 1.0
            above = (weight / images)[score >= mass[row, candidate]].sum()
            if (above + largest) / ((weight / images).sum() + largest) > 0.2:
                inside.append(candidate)
        assert np.flatnonzero(sets[row]).tolist() == list(range(min(inside), max(inside) + 1))


@pytest.mark.parametrize(
    "images",
    [
        pytest.param(None, marks=pytest.mark.slow, id="two eyes"),
        pytest.param(several, id="more images of the diseased"),
    ],
)
def test_the_sets_hold_the_grade_of_a_random_image_of_a_new_patient_as_often_as_promised(images):
    """75 studies of 200 validation patients, 90 % promised: the mean coverage is at least that, less 3 standard errors (.0085), and not far above."""
    new = graded_patients(4000, seed=0, noise=0.8, images=images)
    every = Graded.of(new)
    each, row = every.per_patient, np.arange(len(every.grade))
    weights = {
        "alike": {"all": each},
        "severity": {"all": each * (1 + every.grade)},
        "grade": {grade: each * (np.minimum(every.grade, 3) == grade) for grade in range(4)},
    }
    held: dict[tuple[str, object], list[float]] = {}
    for study in range(75):
        validation = graded_patients(200, seed=1 + study, noise=0.8, images=images, validation=200)
        joined = rb.Predictions(
            np.concatenate([np.char.add("v", validation.image_id), new.image_id]),
            *(np.concatenate([getattr(validation, name), getattr(new, name)]) for name in ("label", "probs", "grade")),
            patient_id=np.concatenate([np.char.add("v", validation.patient_id), new.patient_id]),
            split=np.concatenate([validation.split, new.split]),
            grade_prob=np.concatenate([validation.grade_prob, new.grade_prob]),
        )
        for weighting, masses in weights.items():
            inside = grade_sets(joined, weighting)[len(validation) :][row, every.grade]
            for name, mass in masses.items():
                held.setdefault((weighting, name), []).append(float(mass @ inside / mass.sum()))
    for key, values in held.items():
        assert np.mean(values) >= 0.9 - 0.0085, key
    assert np.mean(held["alike", "all"]) <= 0.93


def test_sets_need_validation_images_and_a_known_weighting():
    found = graded_patients(20, seed=0)
    with pytest.raises(InputError, match="has no validation images that choose the sets"):
        grade_sets(found)
    with pytest.raises(InputError, match="unknown weighting 'severe'"):
        grade_sets(found, "severe")


def test_few_patients_decide_nothing_and_every_grade_is_in_the_set():
    found = graded_patients(30, seed=0, validation=8)  # nine patients are needed for 90 %
    assert grade_sets(found).all()
    assert not grade_sets(found, coverage=0.8).all()
