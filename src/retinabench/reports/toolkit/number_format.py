"""Numbers as text: how a value, its standard error and its interval are written in every table and page.

`NumberFormat` writes one number; `Quantity` is a value with its interval, its standard error and the name under which a
page carries its exact value.

**How many decimals.** A number with an interval gets as many as its interval bears out: the last one is at most a fifth of
the interval's width, so that the ends can be told apart and nothing is claimed beyond them. Of a number with a standard
error alone the width is four standard errors. A number without either has the decimals of its `NumberFormat`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from markupsafe import Markup, escape

from retinabench.metrics.proportions import Interval

MINUS, DASH = "−", "–"
MOST_DIGITS = 6


@dataclass(frozen=True)
class NumberFormat:
    """How a number is written: `suffix` follows the value times `scale`, rounded to `digits` decimals; `signed` writes a plus sign.

    An interval asks for at most `most` decimals.
    """

    digits: int = 3
    signed: bool = False
    scale: float = 1.0
    suffix: str = ""
    most: int = MOST_DIGITS

    def __call__(self, value: float) -> str:
        """Return the number as text with a true minus sign; "undefined" where it is not finite."""
        if not math.isfinite(value):
            return "undefined"
        text = f"{abs(self.scale * value):,.{self.digits}f}"
        zero = float(text.replace(",", "")) == 0
        sign = "" if zero else MINUS if value < 0 else "+" if self.signed else ""
        return f"{sign}{text}{self.suffix}"

    def fitted(self, width: float) -> NumberFormat:
        """Return the same format with the decimals that an interval of this width bears out; see the top of the file."""
        width = abs(self.scale) * width
        if not (math.isfinite(width) and width > 10**-MOST_DIGITS):  # a narrower one is rounding
            return self
        digits = math.ceil(-math.log10(width / 5) - 1e-9)
        return replace(self, digits=min(max(digits, 0), self.most))

    def interval(self, low: float, high: float) -> str:
        if not (math.isfinite(low) and math.isfinite(high)):
            return ""
        return f"[{self(low)}, {self(high)}]"


TWO_DIGITS, THREE_DIGITS = NumberFormat(2), NumberFormat(3)
PERCENT = NumberFormat(0, scale=100, suffix=" %")
COUNT = NumberFormat(0)


def plain(value: float, digits: int = 2, *, signed: bool = False) -> str:
    return NumberFormat(digits, signed)(value)


def percent(value: float, digits: int = 0) -> str:
    return NumberFormat(digits, scale=100, suffix=" %")(value)


def p_value(p: float) -> str:
    """Return a p-value as text: three decimals, "<0.001" below one thousandth (none is zero), a dash where it is unknown."""
    if not math.isfinite(p):
        return DASH
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def join_names(names: Sequence[str]) -> Markup:
    """Join escaped names as prose does: "A", "A and B", "A, B and C"."""
    parts = [escape(name) for name in names]
    if len(parts) < 2:
        return Markup("").join(parts)
    return Markup(", ").join(parts[:-1]) + Markup(" and ") + parts[-1]


@dataclass(frozen=True)
class Place:
    """The name of a number in `scores.json` and `table.csv`: entry (a method), set and score."""

    entry: str
    set: str
    score: str


@dataclass(frozen=True)
class Quantity:
    """A number with its 95 % interval and its standard error over runs, NaN where unknown; `place` names it in the files beside a page, None leaves its exact value out."""

    value: float
    low: float = math.nan
    high: float = math.nan
    error: float = math.nan
    place: Place | None = None

    @property
    def defined(self) -> bool:
        return math.isfinite(self.value)

    @property
    def bounded(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def sign(self, against: float = 0.0) -> int:
        if not self.bounded:
            return 0
        return 1 if self.low > against else -1 if self.high < against else 0

    def form(self, form: NumberFormat = THREE_DIGITS) -> NumberFormat:
        return form.fitted(self.high - self.low if self.bounded else 4 * self.error)

    def error_form(self, form: NumberFormat = THREE_DIGITS) -> NumberFormat:
        value, own = self.form(form), form.fitted(4 * self.error)
        return replace(own, digits=max(value.digits, own.digits), signed=False)

    def html(self, form: NumberFormat = TWO_DIGITS, part: str = "value") -> Markup:
        """Return one part ("value", "low", "high" or "standard_error") as HTML, with its exact value as an attribute.

        The element has the attributes `data-entry`, `data-set`, `data-score`, `data-part` and `data-value` (all
        digits), so that a page can be checked against `scores.json` and `table.csv`.
        """
        if part == "standard_error":
            number, form = self.error, self.error_form(form)
        else:
            number, form = float(getattr(self, part)), self.form(form)
        if not math.isfinite(number) or self.place is None:
            return Markup("<span>{}</span>").format(form(number))
        return Markup(
            '<span data-entry="{}" data-set="{}" data-score="{}" data-part="{}" data-value="{!r}">{}</span>'
        ).format(self.place.entry, self.place.set, self.place.score, part, float(number), form(number))

    def interval_html(self, form: NumberFormat = TWO_DIGITS) -> Markup:
        if not self.bounded:
            return Markup("")
        return Markup('<span class="whole">[{}, {}]</span>').format(self.html(form, "low"), self.html(form, "high"))

    def whole_html(self, form: NumberFormat = TWO_DIGITS) -> Markup:
        interval = self.interval_html(form)
        return Markup("{} {}").format(self.html(form), interval) if interval else self.html(form)


def pooled(found: Sequence[Interval]) -> Quantity:
    value, low, high = np.array([(one.value, one.low, one.high) for one in found], np.float64).T
    error = float(value.std(ddof=1) / np.sqrt(len(value))) if len(value) > 1 else np.nan
    return Quantity(float(value.mean()), float(low.mean()), float(high.mean()), error)
