"""How numbers are written in the UCI tables."""

from __future__ import annotations

from retinabench.experiments.uci import report


def test_numbers_show_two_digits_of_their_error():
    assert report.plus_minus(-2.4567, 0.0612) == "-2.457 ± 0.061"
    assert report.plus_minus(4.0, 0.2) == "4.00 ± 0.20"
    assert report.plus_minus(0.0051234, 0.00004) == "0.00512 ± 0.00004"
