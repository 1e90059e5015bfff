"""Ranks of several models on the same images."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.metrics.comparison.ranking import rank, ranks
from support.paired_models import models


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.integers(1, 6)), elements=st.integers(0, 4)))
def test_ranks_are_those_of_scipy(draws):
    np.testing.assert_allclose(ranks(draws, True), stats.rankdata(-draws, axis=1))
    np.testing.assert_allclose(ranks(draws, False), stats.rankdata(draws, axis=1))


def test_rank_says_how_often_each_is_first():
    trio = dict(zip(("good", "copy", "poor"), models(7, quality=(1.5, 1.5, 0.6)), strict=True))
    trio["copy"] = trio["good"]
    found = rank(trio, bootstrap=300, scores=["auroc", "nll"])
    for name in ("auroc", "nll"):
        entry = found.to_dict()["sets"]["in_domain"]["scores"][name]
        table = entry["models"]
        assert sum(one["first"] for one in table.values()) == pytest.approx(1)
        assert table["good"]["first"] == table["copy"]["first"] == pytest.approx(0.5, abs=0.01)
        assert table["good"]["rank"] == pytest.approx(1.5, abs=0.02)
        assert (table["poor"]["rank_low"], table["poor"]["rank_high"]) == (3, 3)
        pairs = {(pair["a"], pair["b"]): pair for pair in entry["pairs"]}
        assert pairs["good", "copy"]["p_holm"] == 1
        assert 0 < pairs["good", "poor"]["p"] < 1e-4  # below 2 / (R + 1)
        assert pairs["good", "poor"]["p_holm"] == pytest.approx(3 * pairs["good", "poor"]["p"])
    json.dumps(found.to_dict(), allow_nan=False)
    none = rank(trio, bootstrap=0, scores=["auroc"]).to_dict()["sets"]["in_domain"]["scores"]["auroc"]
    assert none["models"]["good"]["first"] is None
    with pytest.raises(InputError, match="two or more"):
        rank({"a": trio["good"]})
    with pytest.raises(InputError, match="the level is 95"):
        rank(trio, bootstrap=0, level=95)
