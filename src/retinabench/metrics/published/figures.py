"""What the released Retina Benchmark does with several runs: means over seeds, and the lines it draws.

Faults included, as in `published`; see `docs/deviations.md`, 12 to 15.
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


def drawn_line(curves: ArrayLike, metric: str, no_oracle: bool = True) -> tuple[Floats, Floats]:
    """Return the line that the released plot draws.

    Long curves are thinned to about 500 points; accuracy loses its last 100 drawn points, NLL its last 5 %.

    Args:
        curves: (seeds, M) values over the share referred.
        metric: `accuracy`, `nll`, `auroc` or `auprc`.
        no_oracle: Whether to take the oracle's share off once more, although the arrays hold none; the default there.

    Returns:
        x and y of the line.
    """
    arrays = np.asarray(curves, np.float64)
    if no_oracle:
        expert = np.arange(arrays.shape[1]) / arrays.shape[1]
        arrays = (arrays - expert) / (1 - expert)
    if arrays.shape[1] > 500:
        arrays = arrays[:, :: max(2, int(arrays.shape[1] / 500))]
    x, y = np.arange(arrays.shape[1]) / arrays.shape[1], arrays.mean(axis=0)
    if metric == "accuracy":
        return x[:-100], y[:-100]
    if metric == "nll":
        cut = int(len(x) * 0.95)
        return x[:cut], y[:cut]
    return x, y


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
