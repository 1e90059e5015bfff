"""What the released Retina Benchmark does with several runs: means over seeds, and how it reads their ROC curves.

Faults included, as in `published`; see `docs/deviations.md`, 12 and 13.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.metrics.classification import Roc

Floats = NDArray[np.float64]


def aggregate(values: ArrayLike) -> tuple[float, float, float]:
    """Mean, variance and standard error over seeds, all with ddof 0: too small by (n-1)/n; None is dropped."""
    v = np.asarray([x for x in np.asarray(values, object).tolist() if x is not None], np.float64)
    return float(v.mean()), float(v.var()), float(v.std() / np.sqrt(len(v)))


def sensitivity_at_nearest(curve: Roc, rates: ArrayLike) -> Floats:
    """Return the sensitivity of a curve at the points nearest in false-positive rate, not interpolated.

    Args:
        curve: The curve.
        rates: (G,) false-positive rates; the released code has 0, 0.02, … 1.

    Returns:
        (G,) sensitivities.
    """
    distance = np.abs(curve.false_positive_rate[None, :] - np.asarray(rates)[:, None])
    return np.asarray(curve.sensitivity[distance.argmin(axis=1)], np.float64)
