"""P-values of differences and Holm's correction."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from retinabench.metrics.comparison.compare import compare
from retinabench.metrics.inference.p_values import holm, sign_flip_p_value
from support.paired_models import models


@given(hnp.arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1)))
def test_holm_adjusts_to_the_level_at_which_its_procedure_rejects(p):
    def rejected(alpha):
        out = np.zeros(len(p), bool)
        for step, k in enumerate(np.argsort(p, kind="stable")):
            if p[k] * (len(p) - step) > alpha:
                break
            out[k] = True
        return out

    for k, adjusted in enumerate(holm(p)):
        assert rejected(adjusted + 1e-12)[k] or adjusted == 1
        assert not rejected(adjusted - 1e-9)[k]


def test_holm_leaves_undefined_out():
    np.testing.assert_array_equal(holm([0.01, np.nan, 0.04]), [0.02, np.nan, 0.04])


def test_exchanging_models_is_exact():
    """Against all 2^G signs, and against McNemar's exact test, which is the sign test of the discordant pairs."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        d = rng.integers(-3, 4, 9)
        signs = np.array(list(product((-1, 1), repeat=9)))
        expected = np.mean(np.abs(signs @ d) >= abs(d.sum()))
        assert sign_flip_p_value(d) == pytest.approx(expected, abs=1e-12)
    for b, c in ((7, 1), (12, 30), (0, 25)):
        oracle = stats.binomtest(b, b + c).pvalue
        assert sign_flip_p_value(np.repeat([1, -1], [b, c])) == pytest.approx(oracle, rel=1e-9)


def test_a_large_or_weighted_difference_has_the_normal_tail():
    rng = np.random.default_rng(6)
    d = rng.choice([-1, 1], 3900, p=[0.48, 0.52])
    exact = sign_flip_p_value(d)
    assert sign_flip_p_value(d * 1.5) == pytest.approx(exact, rel=0.1)
    assert sign_flip_p_value(np.ones(5000)) < 1e-100


def test_the_p_value_holds_its_level():
    """Two equally good models, 200 data sets: 5 % are rejected; SE of the share 1.5 %."""
    names = ("accuracy", "auroc", "nll")
    rejected = dict.fromkeys(names, 0)
    for seed in range(200):
        a, b = models(1000 + seed, patients=60, quality=(1.0, 1.0))
        found = compare(a, b, bootstrap=99, scores=names)["in_domain"]
        for name in names:
            rejected[name] += found[name].p < 0.05
    assert max(rejected.values()) / 200 <= 0.05 + 3 * 0.015
    assert min(rejected[name] for name in ("auroc", "nll")) / 200 >= 0.01
