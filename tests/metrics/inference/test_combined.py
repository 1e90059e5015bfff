"""Combinations of proportions: by hand, against published formulas, and by coverage of correlated eyes."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.metrics.inference.combined import combined_proportions, difference_of, share_of_two
from retinabench.metrics.inference.interval import Interval
from retinabench.metrics.inference.proportions import clustered_proportion, wilson


def test_one_proportion_is_itself():
    hit, patient = np.array([1, 0, 1, 1, 0, 1]), list("aabbcd")
    alone = clustered_proportion(hit, np.ones(6), patient)
    found = combined_proportions([(2.0, hit)], patient)
    assert (found.value, found.low, found.high) == pytest.approx(
        (2 * alone.value, 2 * alone.low, 2 * alone.high)
    )
    turned = combined_proportions([(-1.0, hit)], patient)
    assert (turned.low, turned.high) == pytest.approx((-alone.high, -alone.low))


def test_a_proportion_and_its_complement_cancel():
    """p + (1 - p) = 1 almost without width: the correlation of the two is -1, the ends are not quite symmetric."""
    rng = np.random.default_rng(0)
    hit = rng.random(200) < 0.4
    found = combined_proportions([(1.0, hit), (1.0, ~hit)], np.arange(200) // 2)
    assert (found.value, found.low, found.high) == pytest.approx((1, 1, 1), abs=0.01)


def test_newcombes_published_difference():
    """56 of 70 against 48 of 80 by Wilson's intervals: 0.2 [0.0524, 0.3339] (Newcombe, Stat. Med. 17:873, 1998, method 10)."""
    a, b = (Interval(k / n, *map(float, wilson(k, n))) for k, n in ((56, 70), (48, 80)))
    found = difference_of(a, b)
    assert (found.value, found.low, found.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_a_share_is_the_root_of_the_interval():
    a, b = Interval(0.8, 0.7, 0.88), Interval(0.1, 0.06, 0.16)
    found = share_of_two(a, b, 0.2, 0.8)
    assert found.value == pytest.approx(0.16 / 0.24)
    for v, one, two, sign in ((found.low, 0.1, 0.06, -1), (found.high, 0.08, 0.04, 1)):
        ends = np.hypot((1 - v) * 0.2 * one, v * 0.8 * two)
        assert (1 - v) * 0.16 - v * 0.08 + sign * ends == pytest.approx(0, abs=1e-12)
    assert np.isnan(share_of_two(Interval(0, 0, 0.1), Interval(0, 0, 0.1), 1, 1).value)


def test_combinations_of_correlated_eyes_cover():
    """400 studies of 100 patients (seed 1): the SE of a coverage of 95 % is 1.1 %."""
    rng = np.random.default_rng(1)
    covered = 0
    patient = np.repeat(np.arange(100), 2)
    for _ in range(400):
        score = np.repeat(rng.normal(size=100), 2) * 0.7 + 0.714 * rng.normal(size=200)
        a, b = (
            score > 1.0364,
            (score < -0.2533) & (score > -1.2816),
        )  # 15 % and 30 %, of the standard normal score
        found = combined_proportions([(1.0, a), (-0.5, b)], patient)
        covered += found.low <= 0.15 - 0.5 * 0.3 <= found.high
    assert 0.915 < covered / 400 <= 0.99


def test_a_single_patient_has_no_interval():
    found = combined_proportions([(1.0, [1, 0]), (-1.0, [0, 1])], ["a", "a"])
    assert found.value == 0
    assert np.isnan(found.low)
