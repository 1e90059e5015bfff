"""Intervals of proportions, of independent and of clustered images."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from conftest import shared_path
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.operating_points import (
    operating_points,
    two_by_two,
)
from retinabench.metrics.inference.proportions import clopper_pearson, clustered_proportion, wilson


def test_wilson_and_clopper_pearson_are_golden():
    golden = json.loads(shared_path("golden", "evaluation", "own_outputs.json").read_text())["idxdr_2x2"]
    for name, values in golden.items():
        if "/" not in name:
            continue
        k, n = map(int, name.split()[-1].split("/"))
        np.testing.assert_allclose(wilson(k, n), values["wilson"], atol=1e-12)
        np.testing.assert_allclose(clopper_pearson(k, n), values["clopper_pearson"], atol=1e-12)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_proportions_agree_with_scipy(counts, level):
    k, n = counts
    test = stats.binomtest(k, n)
    for ours, method in ((wilson, "wilson"), (clopper_pearson, "exact")):
        oracle = test.proportion_ci(level, method)
        np.testing.assert_allclose(ours(k, n, level), (oracle.low, oracle.high), atol=1e-10)


def test_proportions_of_nothing_and_of_impossible_counts():
    assert np.isnan(wilson(0, 0)).all()
    assert np.isnan(clopper_pearson(0, 0)).all()
    with pytest.raises(InputError, match="outside"):
        wilson(3, 2)


def test_single_images_give_clopper_pearson_up_to_the_t_quantile():
    rng = np.random.default_rng(1)
    hit = rng.random(2000) < 0.85
    value, low, high = clustered_proportion(hit, np.ones(2000), np.arange(2000))
    assert value == hit.mean()
    np.testing.assert_allclose((low, high), clopper_pearson(hit.sum(), 2000), atol=2e-4)


def test_copied_images_count_once():
    rng = np.random.default_rng(2)
    hit = rng.random(500) < 0.9
    once = clustered_proportion(hit, np.ones(500), np.arange(500))
    twice = clustered_proportion(np.repeat(hit, 2), np.ones(1000), np.repeat(np.arange(500), 2))
    assert twice == pytest.approx(once, abs=1e-12)
    all_right = clustered_proportion(np.ones(40), np.ones(40), np.repeat(np.arange(20), 2))
    assert all_right == pytest.approx((1.0, *clopper_pearson(20, 20)), abs=1e-12)


def test_the_clustered_interval_covers_where_the_naive_does_not():
    """1,000 data sets, 80 patients x 3 images with intraclass correlation 0.6, p = 0.8; SE of a coverage 0.7 %."""
    rng = np.random.default_rng(3)
    patient = np.repeat(np.arange(80), 3)
    own = naive = 0
    for _ in range(1000):
        common = np.repeat(rng.random(80) < 0.8, 3)
        hit = np.where(rng.random(240) < np.sqrt(0.6), common, rng.random(240) < 0.8)
        _, low, high = clustered_proportion(hit, np.ones(240), patient)
        own += low <= 0.8 <= high
        low, high = clopper_pearson(hit.sum(), 240)
        naive += low <= 0.8 <= high
    assert 0.93 <= own / 1000 <= 0.99  # an exact-type interval is conservative
    assert naive / 1000 < 0.90


def test_nothing_eligible_and_wrong_input():
    assert np.isnan(clustered_proportion([1, 0], [0, 0], [1, 2])).all()
    with pytest.raises(InputError, match="zeros and ones"):
        two_by_two([0, 3], [0, 1])
    with pytest.raises(InputError, match="1 decisions for 2 labels"):
        two_by_two([0, 1], [1])
    with pytest.raises(InputError, match="2 finite numbers"):
        operating_points([0, 1], [0.2, np.nan])
