"""A number with its interval, and how an undefined number is written."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A value and the ends of its interval; NaN where undefined."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def to_dict(self) -> dict[str, float | None]:
        """Return the numbers for JSON, None where undefined."""
        return {name: finite_or_none(getattr(self, name)) for name in ("value", "low", "high")}


def finite_or_none(value: float | None) -> float | None:
    """Return the number as JSON has it: NaN, infinity and None become None."""
    return float(value) if value is not None and math.isfinite(value) else None
