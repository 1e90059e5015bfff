"""Two small targets with real networks: 40 training points each, seconds to train."""

import numpy as np

from retinabench.data.dataset import ArrayDataset
from retinabench.fidelity.targets import data as fidelity_data
from retinabench.fidelity.targets.registry import TARGETS

TRAIN, TEST = 40, 24
SPLITS = {"train": np.arange(TRAIN), "test": np.arange(TRAIN, TRAIN + TEST)}


def regression_target(monkeypatch, shift=0.0):
    """The network of `energy-gap` on a line with noise."""

    def load(source):
        random = np.random.default_rng(1)
        inputs = random.normal(size=(TRAIN + TEST, 8))
        y = inputs[:, 0] + 0.1 * random.normal(size=len(inputs)) + shift
        group = np.array(["train"] * TRAIN + ["gap"] * TEST)
        return ArrayDataset(inputs, y, group, SPLITS)

    monkeypatch.setitem(fidelity_data.LOADERS, "tiny", load)
    return TARGETS["energy-gap"].model_copy(update={"loader": "tiny", "train": TRAIN, "sha256": ""})


def classification_target(monkeypatch):
    """The network of `fundus` on pictures whose brightest corner is their grade."""

    def load(source):
        random = np.random.default_rng(3)
        grade = np.arange(TRAIN + TEST) % 5
        pictures = random.integers(0, 90, (TRAIN + TEST, 28, 28, 3), dtype=np.uint8)
        for k, g in enumerate(grade):
            pictures[k, 5 * g : 5 * g + 5] += 120
        kinds = ["in_domain"] * 8 + ["shifted"] * 6 + [f"corrupted-noise-{1 + k % 2}" for k in range(10)]
        return ArrayDataset(pictures, grade.astype(np.int64), np.array(["train"] * TRAIN + kinds), SPLITS)

    monkeypatch.setitem(fidelity_data.LOADERS, "tiny", load)
    return TARGETS["fundus"].model_copy(update={"loader": "tiny", "train": TRAIN, "sha256": ""})
