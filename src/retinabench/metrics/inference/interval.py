"""A number with its interval, and how an undefined number is written."""

from __future__ import annotations

import math
from dataclasses import dataclass

from retinabench.core.results import Document


@dataclass(frozen=True)
class Interval(Document):
    """A value and the ends of its interval; NaN where undefined."""

    value: float
    low: float = math.nan
    high: float = math.nan


def finite_or_none(value: float | None) -> float | None:
    """Return the number as JSON has it: NaN, infinity and None become None."""
    return float(value) if value is not None and math.isfinite(value) else None
