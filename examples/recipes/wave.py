"""Wave: a regression of one noisy sine over eight features, seven of which do not matter."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from retinabench.data.dataset import ArrayDataset, concatenate


def read(source: Path | None) -> ArrayDataset:
    """Return 64 training points, and 32 test points of which those beyond |x| = 1 are of the group `outside`.

    Args:
        source: Unused: the data are drawn, always the same.

    Returns:
        The data set, with the splits `train` and `test`.
    """
    random = np.random.default_rng(0)

    def part(n: int, width: float) -> ArrayDataset:
        x = random.uniform(-width, width, (n, 8))
        y = np.sin(3 * x[:, 0]) + random.normal(0, 0.1, n)
        return ArrayDataset(x, y, np.where(abs(x[:, 0]) < 1, "inside", "outside"))

    return concatenate({"train": part(64, 1.0), "test": part(32, 2.0)})
