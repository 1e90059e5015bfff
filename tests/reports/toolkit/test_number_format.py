"""Numbers as text."""

import math

import pytest

from retinabench.reports.toolkit.number_format import (
    NumberFormat,
    Place,
    Quantity,
    join_names,
    percent,
    plain,
)


@pytest.mark.parametrize(
    ("value", "digits", "signed", "text"),
    [
        (0.125, 2, False, "0.12"), (-0.5, 2, False, "−0.50"), (-0.001, 2, False, "0.00"), (0.5, 1, True, "+0.5"),
        (0.0, 2, True, "0.00"), (math.nan, 2, False, "undefined"), (12345.6, 1, False, "12,345.6"),
    ],
)  # fmt: skip
def test_plain(value: float, digits: int, signed: bool, text: str) -> None:
    assert plain(value, digits, signed=signed) == text


def test_percent_and_intervals() -> None:
    assert percent(0.256) == "26 %"
    assert percent(math.nan) == "undefined"
    assert NumberFormat(2).interval(0.1, 0.2) == "[0.10, 0.20]"
    assert NumberFormat(2).interval(0.1, math.nan) == ""


def test_names_are_joined_and_escaped() -> None:
    assert join_names(["A"]) == "A"
    assert join_names(["A", "<B>", "C"]) == "A, &lt;B&gt; and C"


def test_sign_of_a_quantity_needs_an_interval() -> None:
    assert Quantity(0.6, 0.55, 0.7).sign(0.5) == 1
    assert Quantity(0.6, 0.45, 0.7).sign(0.5) == 0
    assert Quantity(0.6).sign(0.5) == 0
    assert Quantity(-0.6, -0.7, -0.5).sign() == -1


def test_quantity_carries_its_exact_value() -> None:
    quantity = Quantity(1 / 3, 0.25, 0.5, place=Place("A", "joint", "nll"))
    assert f'data-value="{1 / 3!r}">0.33</span>' in quantity.html()
    assert 'data-part="low" data-value="0.25">0.25</span>' in quantity.whole_html()
    assert Quantity(math.nan).html() == "<span>undefined</span>"
