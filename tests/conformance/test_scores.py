"""What every score must obey, whatever it measures: a new line in `SCORES` is tested here without a new test."""

import inspect
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings

from retinabench.metrics.registry import ON_REQUEST, SCORES
from retinabench.metrics.weighted_images import Cases
from support.shared_inputs import images


def same(a, b):
    np.testing.assert_allclose(a, b, atol=1e-11, rtol=0)


@cache
def drawn():
    """Images for all scores: to draw them takes longer than to score them."""
    found = []
    settings(max_examples=20, deadline=None)(given(case=images(most=60))(lambda case: found.append(case)))()
    return found


@pytest.mark.parametrize("name", SCORES)
def test_laws(name):
    score = SCORES[name]
    for y, p, u, w in drawn():
        far = np.arange(len(y)) % 3 == 0
        value = score(Cases(y, p, u, far).weighted(w))
        assert isinstance(value, float)
        assert not np.isinf(value)
        order = np.random.default_rng(len(y)).permutation(len(y))
        same(score(Cases(y[order], p[order], u[order], far[order]).weighted(w[order])), value)
        # only the order of the uncertainty counts
        rank = np.unique(u, return_inverse=True)[1].astype(float)
        same(score(Cases(y, p, rank**3 + rank, far).weighted(w)), value)
        # an image without weight is not there
        kept = w > 0
        same(score(Cases(y[kept], p[kept], u[kept], far[kept]).weighted(w[kept])), value)
        # a whole weight is so many images of the same patient
        times = np.floor(w).astype(int)
        if times.sum():
            again = Cases(*(np.repeat(x, times) for x in (y, p, u, far)), patient=np.repeat(np.arange(len(y)), times))
            same(score(again.weighted()), score(Cases(y, p, u, far).weighted(times)))


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("label", [[0], [1], [0, 0, 0], [1, 1, 1], [0, 1]])
def test_small_and_one_sided_sets_give_a_number_or_nan(name, label):
    for p in (0.0, 0.3, 0.5, 1.0):
        n = len(label)
        value = SCORES[name](Cases(label, np.full(n, p), np.zeros(n), np.zeros(n, bool)).weighted())
        assert np.isnan(value) or np.isfinite(value)


@pytest.mark.parametrize("name", SCORES)
def test_it_is_described_with_its_source(name):
    function = SCORES[name].function
    text = inspect.getdoc(getattr(function, "func", function))
    assert "References:\n" in text or name == "net_benefit_gain"  # a difference of two shares
    assert SCORES[name].formula
    assert SCORES[name].misleads or SCORES[name].sets == ON_REQUEST
