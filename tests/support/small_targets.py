"""Small data in the form of the fidelity targets, for tests that take seconds."""

import numpy as np

from retinabench.data.dataset import ArrayDataset
from retinabench.fidelity.targets.data import TargetData


def small_data(task, points, seed=0):
    """Training and 7 test points in the form of a target's data, without their meaning."""
    random = np.random.default_rng(seed)
    parts = []
    for count, group in ((points, "train"), (7, "in_domain")):
        if task == "energy-gap":
            inputs, truth = random.normal(size=(count, 8)), random.normal(size=count)
        else:
            inputs = random.integers(0, 255, (count, 28, 28, 3), dtype=np.uint8)
            truth = random.integers(0, 5, count)
        parts.append(ArrayDataset(inputs, truth, np.full(count, group)))
    return TargetData(*parts)
