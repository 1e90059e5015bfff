"""The rows of the released balanced and rebalanced sets."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from retinabench.metrics.published.scores import Index


def balanced_rows(shifted: ArrayLike, seed: int | np.random.RandomState) -> Index:
    """Rows of the balanced joint set: all in-domain, then whole copies of the shifted, then a random rest.

    The rest is drawn without replacement by NumPy's old generator, after `np.random.seed(seed)`.
    """
    rng = seed if isinstance(seed, np.random.RandomState) else np.random.RandomState(seed)
    far = np.flatnonzero(np.asarray(shifted))
    near = np.flatnonzero(~np.asarray(shifted, bool))
    copies = int(len(near) / len(far))
    rest = rng.choice(far, size=len(near) - copies * len(far), replace=False)
    return np.concatenate([near, *[far] * copies, rest])


EYEPACS_GRADES = {0: 0.7359503164, 1: 0.07129130537, 2: 0.1472228732, 3: 0.0228966487, 4: 0.02263885634}


def rebalanced_rows(grade: ArrayLike, seed: int | np.random.RandomState, size: int = 10_000) -> Index:
    """Return rows drawn with replacement so that grades are as frequent as in the EyePACS test set (paper B.5).

    Grades are drawn in the order in which they first appear, int(proportion x size) of each: 9,997 of 10,000.

    Args:
        grade: (N,) 0 to 4.
        seed: Seed or state of NumPy's old generator.
        size: Number of rows asked for.

    Returns:
        The rows.
    """
    rng = seed if isinstance(seed, np.random.RandomState) else np.random.RandomState(seed)
    grades = np.asarray(grade)
    present, first = np.unique(grades, return_index=True)
    drawn = [
        rng.choice(np.flatnonzero(grades == g), size=int(EYEPACS_GRADES[int(g)] * size), replace=True)
        for g in present[np.argsort(first)]
    ]
    return np.concatenate(drawn)
