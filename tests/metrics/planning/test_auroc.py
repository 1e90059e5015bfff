"""The binormal variance of an AUROC: against SciPy's bivariate normal, Hanley and McNeil, and simulated studies."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.intervals import auroc_difference, auroc_error
from retinabench.metrics.planning.auroc import auroc_standard_error, images_for_auroc, images_for_difference
from retinabench.metrics.planning.clusters import Clusters

ONE_IMAGE = Clusters(1, 0, 0)


def test_the_chance_of_two_right_ranks_is_a_bivariate_normal_probability():
    for area in (0.5, 0.7, 0.95):
        both = stats.multivariate_normal([0, 0], [[1, 0.5], [0.5, 1]]).cdf([stats.norm.ppf(area)] * 2)
        n1, n0 = 30, 50
        hanley = area * (1 - area) + (n1 - 1 + n0 - 1) * (both - area**2)
        assert auroc_standard_error(area, n1, n0) ** 2 == pytest.approx(hanley / (n1 * n0), rel=1e-4)


def test_the_number_of_images_gives_the_standard_error():
    n = images_for_auroc(0.9, 0.05, 0.2, ONE_IMAGE)
    assert stats.norm.ppf(0.975) * auroc_standard_error(0.9, 0.2 * n, 0.8 * n) == pytest.approx(0.05)
    dependent = images_for_auroc(0.9, 0.05, 0.2, Clusters(2, 0.5))
    assert dependent / n == pytest.approx(1.5, rel=0.02)


def simulated(rng, patients, shift, correlation):
    """Two eyes of each patient share their label and, by `correlation`, their score."""
    label = np.repeat(rng.random(patients) < 0.3, 2)
    eyes = np.sqrt(correlation) * np.repeat(rng.normal(size=patients), 2)
    eyes += np.sqrt(1 - correlation) * rng.normal(size=2 * patients)
    return label, eyes + shift * label


def test_simulated_studies_have_the_planned_precision():
    """Half-width 0.06 was planned (seed 2, 400 studies of two eyes with correlation 0.5).

    The placements of two eyes are less correlated than their scores, so that the plan errs on the side of precision; the mean
    half-width has a standard error below 0.0005.
    """
    area, shift = 0.85, np.sqrt(2) * stats.norm.ppf(0.85)
    patients = int(images_for_auroc(area, 0.06, 0.3, Clusters(2, 0.5)) / 2) + 1
    rng = np.random.default_rng(2)
    errors = []
    for _ in range(400):
        label, score = simulated(rng, patients, shift, 0.5)
        errors.append(auroc_error(label, score, np.repeat(np.arange(patients), 2)).standard_error)
    half = stats.norm.ppf(0.975) * np.mean(errors)
    assert 0.052 < half < 0.0605


def test_simulated_studies_have_the_planned_power():
    """A difference of 0.05 with power 0.8 (seed 3, 500 studies): standard error of the power 1.8 points."""
    rng = np.random.default_rng(3)
    areas = 0.85, 0.80
    shifts = np.sqrt(2) * stats.norm.ppf(areas)
    # The correlation of two AUROCs is a little below that of the scores: 0.6 gives about 0.57.
    n = int(images_for_difference(areas, 0.57, 0.3, ONE_IMAGE)) + 1
    shown = 0
    for _ in range(500):
        label = rng.random(n) < 0.3
        shared = np.sqrt(0.6) * rng.normal(size=n)
        a, b = (shared + np.sqrt(0.4) * rng.normal(size=n) + shift * label for shift in shifts)
        shown += auroc_difference(label, a, b).p_value < 0.05
    assert shown / 500 == pytest.approx(0.8, abs=0.06)


def test_wrong_arguments_are_refused():
    for arguments in [(0.4, 0.05), (1.0, 0.05), (0.9, 0.6)]:
        with pytest.raises(InputError):
            images_for_auroc(*arguments, 0.2, ONE_IMAGE)
    with pytest.raises(InputError, match="equal"):
        images_for_difference((0.9, 0.9), 0.5, 0.2, ONE_IMAGE)
    with pytest.raises(InputError, match="correlation"):
        images_for_difference((0.9, 0.8), 1.0, 0.2, ONE_IMAGE)
