"""Numbers in the page: what is read, and the exact value beside it as an attribute.

Every number of a study stands in an element with `data-entry`, `data-set`, `data-score`, `data-part` and
`data-value`, the last with all its digits, so that the page can be checked against `table.csv` and `scores.json`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from retinabench.reports.toolkit.number_format import percent, plain

if TYPE_CHECKING:
    from retinabench.reports.evaluation.evidence import Estimate
    from retinabench.reports.evaluation.study import Study


@dataclass(frozen=True)
class Place:
    """Where a number belongs: entry (method), set, score."""

    entry: str
    set: str
    score: str

    def number(self, value: float, part: str = "value", *, digits: int = 2, style: str = "plain") -> Markup:
        """Return the number as it is read, carrying its exact value. style: plain, signed or percent."""
        text = percent(value) if style == "percent" else plain(value, digits, signed=style == "signed")
        if not math.isfinite(value):
            return Markup("<span>{}</span>").format(text)
        return Markup(
            '<span data-entry="{}" data-set="{}" data-score="{}" data-part="{}" data-value="{!r}">{}</span>'
        ).format(self.entry, self.set, self.score, part, float(value), text)

    def interval(self, estimate: Estimate, *, digits: int = 2, style: str = "plain") -> Markup:
        """Return the interval in brackets, or nothing where it is unknown."""
        if not estimate.bounded:
            return Markup("")
        return Markup('<span class="whole">[{}, {}]</span>').format(
            self.number(estimate.low, "low", digits=digits, style=style),
            self.number(estimate.high, "high", digits=digits, style=style),
        )

    def whole(self, estimate: Estimate, *, digits: int = 2, style: str = "plain") -> Markup:
        """Return the number followed by its interval."""
        number = self.number(estimate.value, digits=digits, style=style)
        interval = self.interval(estimate, digits=digits, style=style)
        return Markup("{} {}").format(number, interval) if interval else number


def place(study: Study, entry: int, name: str, score: str) -> Place:
    """Return the place of a score of entry `entry` on a set."""
    return Place(study.entries[entry].name, name, score)


def told(study: Study, entry: int, name: str, score: str, **form: object) -> Markup:
    """Return a score with its interval."""
    return place(study, entry, name, score).whole(study.get(entry, name, score), **form)  # type: ignore[arg-type]


def value(study: Study, entry: int, name: str, score: str, **form: object) -> Markup:
    """Return a score without its interval."""
    return place(study, entry, name, score).number(study.get(entry, name, score).value, **form)  # type: ignore[arg-type]
