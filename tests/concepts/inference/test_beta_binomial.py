"""The variance by which `precision` plans: scipy's beta-binomial distribution."""

from __future__ import annotations

import pytest
from scipy import stats

from retinabench.concepts.inference.beta_binomial import moments


@pytest.mark.parametrize(("right", "asked", "of"), [(0, 1, 1), (3, 5, 40), (40, 40, 41), (7, 9, 300)])
def test_the_moments_are_those_of_scipys_beta_binomial(right, asked, of):
    rest = stats.betabinom(of - asked, right + 0.5, asked - right + 0.5)
    mean, variance = moments(right, asked, of)
    assert mean == pytest.approx((right + rest.mean()) / of, abs=1e-12)
    assert variance == pytest.approx(rest.var() / of**2, abs=1e-12)


def test_a_cell_asked_completely_is_known():
    assert moments(17, 20, 20) == (0.85, 0.0)
