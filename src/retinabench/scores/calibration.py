"""Whether probabilities mean what they say: calibration errors in bins, for weighted images.

Two meanings of binary calibration error are in use and are named apart: *top label* (confidence max(p, 1-p) against
being right) and *positive class* (p against y). Bins are (low, high], the first includes its low edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.scores.cases import Cases, Weighted

Floats = NDArray[np.float64]

BINS = 15


@dataclass(frozen=True)
class Bins:
    """Per bin, (M,): weight, and weighted means of what was forecast and of what happened (NaN in an empty bin)."""

    weight: Floats
    forecast: Floats
    observed: Floats

    def expected_error(self) -> float:
        """ECE: sum over bins of (share of weight) |observed - forecast|."""
        held = self.weight > 0
        gap = np.abs(self.observed - self.forecast)[held]
        return float(self.weight[held] @ gap / self.weight.sum())


def equal_width(forecast: Floats, observed: Floats, weight: Floats, bins: int = BINS) -> Bins:
    """Bins of equal width over [0, 1]; each is (low, high], 0 falls in the first."""
    number = np.searchsorted(np.linspace(0, 1, bins + 1), forecast, side="left") - 1
    return _binned(np.clip(number, 0, bins - 1), forecast, observed, weight, bins)


def _binned(number: NDArray[np.intp], forecast: Floats, observed: Floats, weight: Floats, bins: int) -> Bins:
    mass = np.bincount(number, weight, minlength=bins).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return Bins(
            mass,
            np.bincount(number, weight * forecast, minlength=bins) / mass,
            np.bincount(number, weight * observed, minlength=bins) / mass,
        )


def top_label(w: Weighted) -> tuple[Floats, Floats]:
    """Confidence (N,) of the model's answer, and whether it is right."""
    return np.maximum(w.cases.prob, 1 - w.cases.prob), (~w.cases.error).astype(np.float64)


def ece_top_label_of(w: Weighted) -> float:
    """Expected calibration error of the model's answer, 15 bins of equal width."""
    return equal_width(*top_label(w), w.weight).expected_error()


def ece_positive_class_of(w: Weighted) -> float:
    """Expected calibration error of P(label = 1), 15 bins of equal width."""
    return equal_width(w.cases.prob, w.cases.label.astype(np.float64), w.weight).expected_error()


def ece_top_label(label: ArrayLike, prob: ArrayLike, weight: ArrayLike | None = None) -> float:
    """`ece_top_label_of` from arrays (N,)."""
    return ece_top_label_of(Cases(label, prob).weighted(weight))


def ece_positive_class(label: ArrayLike, prob: ArrayLike, weight: ArrayLike | None = None) -> float:
    """`ece_positive_class_of` from arrays (N,)."""
    return ece_positive_class_of(Cases(label, prob).weighted(weight))
