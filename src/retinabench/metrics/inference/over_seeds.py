"""Several runs of one method that differ by their seed: means, errors, averaged curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.classification import Roc

Floats = NDArray[np.float64]
ROC_GRID = np.linspace(0, 1, 51)


@dataclass(frozen=True)
class Aggregate:
    """Mean, standard deviation (ddof 1), standard error (std / sqrt(n)) and number of runs; NaN where undefined."""

    mean: float
    std: float
    error: float
    runs: int


def aggregate(values: ArrayLike | Sequence[float | None]) -> Aggregate:
    """Mean and standard error over runs, ddof 1; undefined runs (None, NaN) make the aggregate undefined.

    A run without a value is a fact about the method: it is not dropped in silence, as the released code drops it. The
    error of one run is NaN. Ensembles that share members are not independent runs: their error is too small.
    """
    v = np.array([np.nan if x is None else x for x in np.asarray(values, object).tolist()], np.float64)
    if not len(v):
        raise InputError("no runs to aggregate")
    std = float(v.std(ddof=1)) if len(v) > 1 else np.nan
    return Aggregate(float(v.mean()), std, std / float(np.sqrt(len(v))), len(v))


def average_roc(curves: Sequence[Roc], grid: ArrayLike = ROC_GRID) -> tuple[Floats, Floats, Floats]:
    """Vertical average of ROC curves: grid of false positive rates (M,), mean sensitivity, standard error (ddof 1).

    Each curve is read on its chord at the grid (at a jump: its upper end), not at the nearest point. One curve has no
    error (NaN).
    """
    x = np.asarray(grid, np.float64)
    read = np.array([_read(curve, x) for curve in curves])
    if len(read) == 1:
        return x, read[0], np.full(len(x), np.nan)
    return x, read.mean(axis=0), np.asarray(read.std(axis=0, ddof=1) / np.sqrt(len(read)))


def _read(curve: Roc, x: Floats) -> Floats:
    rate, height = curve.false_positive_rate, curve.sensitivity
    last = np.append(np.flatnonzero(np.diff(rate)), len(rate) - 1)  # the top of every vertical piece
    first = np.append(0, last[:-1] + 1)  # its foot
    right = np.searchsorted(rate[last], x, side="left").clip(max=len(last) - 1)
    left = np.maximum(right - 1, 0)
    span = rate[last[right]] - rate[last[left]]
    part = np.divide(x - rate[last[left]], span, out=np.ones(len(x)), where=span > 0)
    between = height[last[left]] + part * (height[first[right]] - height[last[left]])
    return np.asarray(np.where(x >= rate[last[right]], height[last[right]], between))
