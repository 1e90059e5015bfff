"""The printed values of the UCI comparison."""

from __future__ import annotations

from retinabench.data.datasets.uci import SETS
from retinabench.experiments.uci.published import GRID_SEARCH, PUBLISHED
from retinabench.experiments.uci.training import SETTINGS


def test_every_set_has_its_printed_values():
    assert list(PUBLISHED) == list(GRID_SEARCH) == list(SETS)
    assert all(list(by_method) == list(SETTINGS) for by_method in PUBLISHED.values())
