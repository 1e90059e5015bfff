"""Sample sizes of proportions: minimal by brute force, close to the closed forms, and with the power they state."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.planning.proportions import exact_power, images_for_half_width, images_for_power
from retinabench.metrics.proportions import clopper_pearson


@pytest.mark.parametrize(("expected", "half"), [(0.9, 0.05), (0.85, 0.1), (1.0, 0.03), (0.5, 0.02)])
def test_the_interval_is_narrow_enough_and_one_image_fewer_is_not(expected, half):
    def width(n):
        low, high = clopper_pearson(expected * n, n)
        return (high - low) / 2

    n = images_for_half_width(expected, half)
    assert width(n) <= half < width(n - 1)


def test_large_samples_agree_with_the_wald_formula():
    wald = stats.norm.ppf(0.975) ** 2 * 0.9 * 0.1 / 0.01**2
    assert images_for_half_width(0.9, 0.01) == pytest.approx(wald, rel=0.05)


def test_power_by_enumeration():
    for n in (20, 57, 130):
        lower = np.array([clopper_pearson(k, n)[0] for k in range(n + 1)])
        # A success count rejects where P(X >= k | 0.8) <= 2.5 %, which is where its lower limit is 0.8 or more.
        power = stats.binom.pmf(np.arange(n + 1)[lower >= 0.8], n, 0.92).sum()
        assert exact_power([n], 0.92, 0.8)[0] == pytest.approx(power, abs=1e-12)


@pytest.mark.parametrize(
    ("expected", "above", "power"), [(0.9, 0.85, 0.8), (0.95, 0.85, 0.9), (1.0, 0.9, 0.8)]
)
def test_from_the_returned_size_on_power_holds(expected, above, power):
    n = images_for_power(expected, above, power)
    found = exact_power(np.arange(max(n - 1, 1), 3 * n), expected, above)
    assert found[0] < power or n == 1
    assert (found[1:] >= power).all()
    z = stats.norm.ppf(0.975) * np.sqrt(above * (1 - above)) + stats.norm.ppf(power) * np.sqrt(
        expected * (1 - expected)
    )
    assert n == pytest.approx((z / (expected - above)) ** 2, rel=0.15, abs=12)


def test_what_cannot_be_shown_is_refused():
    for arguments in [(0.8, 0.85), (0.9, 0.9), (1.2, 0.8), (0.9, 0.8999999)]:
        with pytest.raises(InputError):
            images_for_power(*arguments)
    for half in (0, 0.5, 1e-5):
        with pytest.raises(InputError):
            images_for_half_width(0.9, half)
