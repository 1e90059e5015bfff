"""How numbers are written in the UCI tables."""

from __future__ import annotations

from retinabench.data.datasets.uci import SETS
from retinabench.experiments.uci import report
from retinabench.experiments.uci.report import GRID_SEARCH, PUBLISHED
from retinabench.experiments.uci.training import SETTINGS


def test_numbers_show_two_digits_of_their_error():
    assert report.plus_minus(-2.4567, 0.0612) == "-2.457 ± 0.061"
    assert report.plus_minus(4.0, 0.2) == "4.00 ± 0.20"
    assert report.plus_minus(0.0051234, 0.00004) == "0.00512 ± 0.00004"


def test_every_set_has_its_printed_values():
    assert list(PUBLISHED) == list(GRID_SEARCH) == list(SETS)
    assert all(list(by_method) == list(SETTINGS) for by_method in PUBLISHED.values())
