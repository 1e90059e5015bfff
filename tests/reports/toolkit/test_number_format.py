import math

import pytest

from retinabench.reports.toolkit.tables import NumberFormat, Place, Quantity, join_names, p_value, plain


@pytest.mark.parametrize(
    ("value", "digits", "signed", "text"),
    [
        (0.125, 2, False, "0.12"), (-0.5, 2, False, "−0.50"), (-0.001, 2, False, "0.00"), (0.5, 1, True, "+0.5"),
        (0.0, 2, True, "0.00"), (math.nan, 2, False, "undefined"), (12345.6, 1, False, "12,345.6"),
    ],
)  # fmt: skip
def test_plain(value: float, digits: int, signed: bool, text: str) -> None:
    assert plain(value, digits, signed=signed) == text


def test_names_are_joined_and_escaped() -> None:
    assert join_names(["A"]) == "A"
    assert join_names(["A", "<B>", "C"]) == "A, &lt;B&gt; and C"


def test_sign_of_a_quantity_needs_an_interval() -> None:
    assert Quantity(0.6, 0.55, 0.7).sign(0.5) == 1
    assert Quantity(0.6, 0.45, 0.7).sign(0.5) == 0
    assert Quantity(0.6).sign(0.5) == 0
    assert Quantity(-0.6, -0.7, -0.5).sign() == -1


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        (Quantity(0.0512, 0.0491, 0.0533), "+0.0512 [+0.0491, +0.0533]"),
        (Quantity(0.05123, 0.05091, 0.05133), "+0.05123 [+0.05091, +0.05133]"),
        (Quantity(0.62, 0.5, 0.75), "+0.62 [+0.50, +0.75]"), (Quantity(12.34, -40, 55), "+12 [−40, +55]"),
        (Quantity(0.5, 0.5, 0.5), "+0.500 [+0.500, +0.500]"), (Quantity(0.5), "+0.500"),
    ],
)  # fmt: skip
def test_decimals_follow_the_width_of_the_interval(quantity: Quantity, text: str) -> None:
    form = quantity.form(NumberFormat(3, signed=True))
    assert f"{form(quantity.value)} {form.interval(quantity.low, quantity.high)}".strip() == text


def test_the_ends_of_an_interval_can_always_be_told_apart() -> None:
    for exponent in range(-4, 3):
        for width in (1, 1.5, 2, 3, 4.99, 5, 5.01, 9.9):
            low, high = 0.3, 0.3 + width * 10.0**exponent
            form = Quantity(low, low, high).form()
            digits = form.digits
            assert 10.0**-digits <= (high - low) / 5 * 1.001 or digits == 6
            assert digits == 0 or 10.0 ** (1 - digits) > (high - low) / 5


def test_quantity_carries_its_exact_value() -> None:
    quantity = Quantity(1 / 3, 0.25, 0.5, place=Place("A", "joint", "nll"))
    assert f'data-value="{1 / 3!r}">0.33</span>' in quantity.html()
    assert 'data-part="low" data-value="0.25">0.25</span>' in quantity.whole_html()
    assert Quantity(math.nan).html() == "<span>undefined</span>"


@pytest.mark.parametrize(
    ("p", "text"), [(0.0, "<0.001"), (9e-4, "<0.001"), (0.001, "0.001"), (0.0496, "0.050"), (1.0, "1.000")]
)
def test_no_p_value_is_zero(p: float, text: str) -> None:
    assert p_value(p) == text
    assert p_value(math.nan) == "–"
