"""Several runs of one method that differ by their seed: means and errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from retinabench.core.errors import InputError


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
