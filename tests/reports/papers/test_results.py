"""Results of methods over runs."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from retinabench.metrics.over_seeds import aggregate
from retinabench.reports.papers.curves import Curves
from retinabench.reports.papers.measurements import Measurements
from retinabench.reports.papers.results import MethodRuns


def test_ensembles_that_share_members_are_not_independent():
    """All 20 triples of 6 seeds, each the mean of its members: the mean of all is that of the 6, and so is its error."""
    member = np.random.default_rng(5).normal(size=6)
    triples = list(combinations(range(6), 3))
    values = [float(member[list(triple)].mean()) for triple in triples]
    pooled = MethodRuns(
        "ensemble", "m", True, None, [Measurements({}, {}, {}, {}, Curves({}, {}, {}))] * 20, [], triples
    )
    naive = aggregate(values).error
    assert np.mean(values) == pytest.approx(member.mean())
    assert pooled.standard_error(values) > 1.5 * naive
    # Without seed j the mean is that of the five others: the jackknife of a mean, which is s / sqrt(n).
    assert pooled.standard_error(values) == pytest.approx(member.std(ddof=1) / np.sqrt(6))
    assert pooled.independent == 6
