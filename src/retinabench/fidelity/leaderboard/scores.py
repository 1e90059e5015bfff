"""Scores, ranks and equivalent draws of the entries of the fidelity benchmark, each with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retinabench.core.results import JsonObject, json_content
from retinabench.fidelity.scoring.equivalent_draws import DrawCurve
from retinabench.fidelity.scoring.resampling import Estimate
from retinabench.metrics.inference.bootstrap import percentile_interval
from retinabench.reports.toolkit.number_format import Quantity

WHY_UNDEFINED = {
    "epistemic_correlation": "needs posterior samples that differ",
    "epistemic_error": "needs posterior samples",
    "disagreement_gap": "needs posterior samples",
    "nll": "a class that occurs got probability 0, or less than is stored",
}
_BOUNDS = {
    **dict.fromkeys(("agreement", "total_variation", "accuracy", "referral_area", "coverage_90"), (0.0, 1.0)),
    **dict.fromkeys(("wasserstein", "w2", "w2_as_printed", "nll", "rmse", "crps", "regret"), (0.0, np.inf)),
}
Floats = NDArray[np.float64]
Groups = Mapping[str, Mapping[str, "Score"]]
"""Scores by group of test points and measure."""


@dataclass(frozen=True)
class Draws:
    """How many independent draws of the posterior are as far from the reference as an entry.

    Attributes:
        quantity: The number, with the interval that follows from that of the distance.
        most: The number that are as far as the reference's own error: no more can be told.
    """

    quantity: Quantity
    most: float

    @classmethod
    def of(cls, curve: DrawCurve, distance: Quantity) -> Draws:
        """Return the number of draws of a distance with its interval."""
        value, low, high = (curve.draws(one) for one in (distance.value, distance.high, distance.low))
        return cls(Quantity(value, low, high), curve.most)

    @property
    def text(self) -> str:
        """The number, or that it is at least that."""
        value = self.quantity.value
        if not np.isfinite(value):
            return ""
        digits = 2 if value < 1 else 1 if value < 10 else 0
        return f"{'≥ ' if value >= self.most * (1 - 1e-9) else ''}{value:.{digits}f}"

    def to_dict(self) -> JsonObject:
        """Return the number for JSON."""
        return _interval(self.quantity) | {"most": self.most}


@dataclass(frozen=True)
class Score:
    """A measure of one entry on one group of test points.

    Attributes:
        quantity: The value with its interval and, of several seeds, its standard error over seeds.
        why: Reason of an undefined value.
    """

    quantity: Quantity
    why: str = ""

    @classmethod
    def of(cls, name: str, estimate: Estimate | None, error: float = np.nan) -> Score:
        """Return the score of a measure from its estimate.

        Args:
            name: The measure.
            estimate: Its value and replicates; None where it is undefined.
            error: Standard error over seeds; NaN for a single one.
        """
        if estimate is None or not np.isfinite(estimate.value):
            return cls(Quantity(np.nan), why=WHY_UNDEFINED.get(name, "undefined here"))
        least, most = _BOUNDS.get(name, (-np.inf, np.inf))  # a normal part of a replicate may pass them
        low, high = (min(max(end, least), most) if np.isfinite(end) else end for end in estimate.interval())
        return cls(Quantity(estimate.value, low, high, error))

    def to_dict(self) -> JsonObject:
        """Return the score for JSON; an undefined value is None with a `why`."""
        if not self.quantity.defined:
            return {"value": None, "why": self.why}
        return _interval(self.quantity) | (
            {"error": self.quantity.error} if np.isfinite(self.quantity.error) else {}
        )


@dataclass(frozen=True)
class Rank:
    """A mean rank with its 95 % interval, NaN where it was not resampled, and the places that are resolved.

    Attributes:
        quantity: The mean rank.
        places: Best and worst place that the resolved differences leave.
    """

    quantity: Quantity
    places: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, value: float, replicates: Floats, places: tuple[int, int]) -> Rank:
        """Return the rank of a value.

        Args:
            value: The mean rank.
            replicates: Its replicates, (R,).
            places: Best and worst place.
        """
        if not len(replicates):
            return cls(Quantity(float(value)), places)
        low, high = percentile_interval(replicates[:, None], points=True)
        return cls(Quantity(float(value), float(low[0]), float(high[0])), places)

    @property
    def text(self) -> str:
        """The place where it is resolved, else the places that it shares."""
        best, worst = self.places
        return str(best) if best == worst else f"{best}–{worst}"

    def to_dict(self) -> JsonObject:
        """Return the rank and its interval for JSON."""
        interval = _interval(self.quantity)
        best, worst = self.places
        return {"rank": interval.pop("value"), **interval, "best": best, "worst": worst}


def _interval(quantity: Quantity) -> JsonObject:
    return {name: json_content(getattr(quantity, name)) for name in ("value", "low", "high")}
