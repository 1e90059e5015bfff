"""Sets of grades: by their definition, and their coverage on patients of a known model."""

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.grades import Graded, entering_mass, grade_sets
from support.graded import graded_patients


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
