"""The lines that the released Retina Benchmark draws, for the proofs of its deviations 14 and 15 in `docs/deviations.md`."""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def drawn_line(curves: ArrayLike, metric: str, no_oracle: bool = True) -> tuple[NDArray[np.float64], ...]:
    """Return the line that the released plot draws. Long curves are thinned to about 500 points; accuracy loses its last 100 drawn
    points, NLL its last 5 %."""
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
