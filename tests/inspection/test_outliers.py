import numpy as np
import pytest
from scipy.stats import median_abs_deviation, norm

from retinabench.inspection.outliers import robust_z


def test_robust_z_is_the_distance_from_the_median_in_units_of_the_mad():
    values = np.random.default_rng(0).normal(5, 2, 501)
    expected = (values - np.median(values)) / median_abs_deviation(values) * norm.ppf(0.75)
    # The published constant 0.6745 rounds norm.ppf(3/4) = 0.67449.
    assert robust_z(values) == pytest.approx(expected, rel=2e-5)


def test_most_values_equal_leaves_the_mean_absolute_deviation():
    values = np.array([7.0] * 9 + [17.0])
    assert robust_z(values)[-1] == pytest.approx(10 / (1.2533 * 1.0))
    assert (robust_z(values)[:9] == 0).all()


def test_all_values_equal_are_no_outliers():
    assert (robust_z(np.full(5, 3.0)) == 0).all()
