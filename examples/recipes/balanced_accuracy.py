"""Balanced accuracy: the mean of sensitivity and specificity."""

from __future__ import annotations

from retinabench.metrics.classification import sensitivity_of, specificity_of
from retinabench.metrics.weighted_images import Floats, Weighted


def balanced_accuracy_of(w: Weighted) -> Floats:
    """Return (sensitivity + specificity) / 2 at p > 1/2, NaN where a class is missing.

    References:
        Brodersen et al. 2010, The balanced accuracy and its posterior distribution, ICPR.
    """
    return (sensitivity_of(w) + specificity_of(w)) / 2
