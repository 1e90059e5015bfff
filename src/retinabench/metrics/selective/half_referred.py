"""What remains when the more uncertain half of the images is referred: the numbers of the evaluation report."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.classification import sensitivity_within
from retinabench.metrics.selective.referral_curves import METRICS
from retinabench.metrics.sorted_images import Weighted

Floats = NDArray[np.float64]

SPECIFICITY = 0.80
NAMES = (
    "accuracy_at_50",
    "gain_at_50",
    "closed_at_50",
    "perfect_accuracy_at_50",
    "sensitivity_at_50",
    "specificity_at_50",
    "prevalence_at_50",
    "missed_at_50",
    "sensitivity_at_specificity_80",
)
"""What `numbers` returns, in this order; each name is defined in `docs/scores.md`."""
_CURVES = ("accuracy", "sensitivity", "specificity", "prevalence")


def numbers(w: Weighted) -> Floats:
    """Return the (K,) numbers named in `NAMES`; NaN where undefined."""
    total, half = len(w.points), len(w.points) // 2
    if half == 0:
        return np.full(len(NAMES), np.nan)
    value = {name: float(METRICS[name](w)[0][half - 1]) for name in _CURVES}
    accuracy = 1 - w.retained_error[-1] / w.total
    perfect = min(1.0, accuracy * total / half)
    gain = value["accuracy"] - accuracy
    positives = w.retained_positives[half - 1]
    missed = (1 - value["sensitivity"]) * positives if positives else 0
    return np.array(
        [
            value["accuracy"],
            gain,
            gain / (perfect - accuracy) if perfect > accuracy else np.nan,
            perfect,
            value["sensitivity"],
            value["specificity"],
            value["prevalence"],
            missed / w.positives if w.positives else np.nan,
            float(sensitivity_within(w, np.array([1 - SPECIFICITY]))[0]),
        ]
    )


def number(w: Weighted, name: str) -> float:
    """Return one of `numbers` by its name."""
    return float(numbers(w)[NAMES.index(name)])
