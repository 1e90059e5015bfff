"""The printed table of 2019: a row of the paper stands below the method that it has."""

from __future__ import annotations

import pytest

from retinabench.reports.papers.filos_printed import PRINTED, with_printed
from retinabench.reports.toolkit.tables import Cell, Row


def test_printed_values_stand_below_their_method():
    rows = [Row(name, [Cell("x")] * 6) for name in ("dropout", "ours", "guess")]
    found = with_printed(rows, ["mc_dropout", "none_of_these", "random"], "shifted")
    assert [row.label for row in found] == [
        "dropout",
        "dropout, printed in 2019",
        "ours",
        "guess",
        "guess, printed in 2019",
    ]
    assert [row.control for row in found] == [False, True, False, False, True]
    assert [(cell.content.value, cell.content.error) for cell in found[1].cells][:2] == [
        (79.9, 0.3),
        (84.1, 1.5),
    ]


@pytest.mark.parametrize("name", PRINTED)
def test_every_row_has_six_numbers_with_errors(name):
    for file, text in PRINTED[name].items():
        numbers = [float(word) for word in text.split()]
        assert len(numbers) == 12, file
        assert max(numbers[1::2]) < 2
        accuracy = numbers[2::4]
        if name == "in_domain":  # under the shift, random referral moves it by chance
            assert accuracy == sorted(accuracy, reverse=True), file
