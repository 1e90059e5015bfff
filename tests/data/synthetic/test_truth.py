"""Grades, readers and lesion counts of the synthetic patients follow their stated laws."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.data.synthetic.streams import POPULATIONS
from retinabench.data.synthetic.truth import (
    CONFUSION,
    FELLOW_EYE_CORRELATION,
    GRADE_MIX,
    LESIONS,
    ImageTruth,
)
from support.irreducible import irreducible


@pytest.mark.parametrize("population", POPULATIONS)
def test_true_grades_follow_the_stated_mix(population: str, records: dict[str, list[ImageTruth]]) -> None:
    """Within four standard errors; one eye per patient, so that the draws are independent."""
    grades = np.array([t.true_grade for t in records[population][::2]])
    expected = GRADE_MIX[population]
    share = np.bincount(grades, minlength=5) / len(grades)
    assert np.all(np.abs(share - expected) < 4 * np.sqrt(expected * (1 - expected) / len(grades)))


@pytest.mark.parametrize("population", POPULATIONS)
def test_fellow_eyes_are_tied_by_the_stated_copula(
    population: str, records: dict[str, list[ImageTruth]]
) -> None:
    """P(both eyes referable) equals the bivariate normal orthant probability, within four standard errors."""
    from scipy.stats import multivariate_normal, norm

    referable = np.array([t.true_grade >= 2 for t in records[population]]).reshape(-1, 2)
    cut = norm.ppf(GRADE_MIX[population][2:].sum())
    r = FELLOW_EYE_CORRELATION
    both = float(multivariate_normal([0, 0], [[1, r], [r, 1]]).cdf([cut, cut]))
    assert abs(referable.all(1).mean() - both) < 4 * np.sqrt(both * (1 - both) / len(referable))
    assert [t.eye for t in records[population][:2]] == ["left", "right"]
    assert [t.patient for t in records[population][:4]] == [0, 0, 1, 1]


def test_reported_grades_follow_the_confusion_matrix(records: dict[str, list[ImageTruth]]) -> None:
    pairs = np.array([(t.true_grade, t.reported_grade) for rows in records.values() for t in rows])
    np.testing.assert_allclose(CONFUSION.sum(1), 1, atol=1e-12)
    for grade in range(5):
        reported = pairs[pairs[:, 0] == grade, 1]
        share, expected = np.bincount(reported, minlength=5) / len(reported), CONFUSION[grade]
        assert np.all(np.abs(share - expected) <= 4 * np.sqrt(expected * (1 - expected) / len(reported)))


@pytest.mark.parametrize("population", POPULATIONS)
def test_irreducible_error_and_nll_agree_with_monte_carlo(population: str) -> None:
    rng = np.random.default_rng(7)
    grades = rng.choice(5, 200_000, p=GRADE_MIX[population])
    p = CONFUSION[grades, 2:].sum(1)
    label = rng.random(len(p)) < p
    loss = -np.log(np.where(label, p, 1 - p))
    error = label != (p > 0.5)
    floor = irreducible(population)
    assert abs(error.mean() - floor.error) < 4 * error.std() / np.sqrt(len(p))
    assert abs(loss.mean() - floor.nll) < 4 * loss.std() / np.sqrt(len(p))


@pytest.mark.parametrize("population", POPULATIONS)
def test_p_referable_is_the_frequency_of_referable_reports(
    population: str, records: dict[str, list[ImageTruth]]
) -> None:
    p = np.array([t.p_referable for t in records[population]])
    label = np.array([t.reported_grade >= 2 for t in records[population]])
    for value in np.unique(p):
        chosen = label[p == value]
        assert abs(chosen.mean() - value) <= 4 * np.sqrt(value * (1 - value) / len(chosen))


@pytest.mark.parametrize("population", POPULATIONS)
def test_lesion_counts_meet_the_severity_scale(population: str, records: dict[str, list[ImageTruth]]) -> None:
    for t in records[population]:
        n, haemorrhages = t.lesions, t.lesions["blot_haemorrhage"] + t.lesions["flame_haemorrhage"]
        proliferative = n["new_vessels"] + n["preretinal_haemorrhage"] + n["vitreous_haemorrhage"]
        total = sum(n.values())
        assert tuple(n) == LESIONS
        if t.true_grade == 0:
            assert total == 0
        elif t.true_grade == 1:
            assert n["microaneurysm"] == total > 0
        else:
            assert n["microaneurysm"] > 0
            assert n["blot_haemorrhage"] > 0
            assert n["flame_haemorrhage"] > 0
            severe = haemorrhages >= 80 or n["venous_beading"] >= 2
            assert severe == (t.true_grade == 3)
            assert (proliferative > 0) == (t.true_grade == 4)
            assert severe or haemorrhages < 20
