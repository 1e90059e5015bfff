"""Two small targets with real networks: 40 training points each, seconds to train."""

import numpy as np

from retinabench.data.dataset import ArrayDataset
from retinabench.fidelity.targets.target import TARGETS

TRAIN, TEST = 40, 24
SPLITS = {"train": np.arange(TRAIN), "test": np.arange(TRAIN, TRAIN + TEST)}


def read_line(source, shift=0.0):
    random = np.random.default_rng(1)
    inputs = random.normal(size=(TRAIN + TEST, 8))
    y = inputs[:, 0] + 0.1 * random.normal(size=len(inputs)) + shift
    return ArrayDataset(inputs, y, np.array(["train"] * TRAIN + ["gap"] * TEST), SPLITS)


def read_corners(source):
    random = np.random.default_rng(3)
    grade = np.arange(TRAIN + TEST) % 5
    images = random.integers(0, 90, (TRAIN + TEST, 28, 28, 3), dtype=np.uint8)
    for k, g in enumerate(grade):
        images[k, 5 * g : 5 * g + 5] += 120
    kinds = ["in_domain"] * 8 + ["shifted"] * 6 + [f"corrupted-noise-{1 + k % 2}" for k in range(10)]
    return ArrayDataset(images, grade.astype(np.int64), np.array(["train"] * TRAIN + kinds), SPLITS)


def small(name, **changes):
    return TARGETS[name].model_copy(update={"train": TRAIN, "sha256": "", **changes})


def regression_target(shift=0.0):
    """The network of `energy-gap` on a line with noise."""
    options = {"shift": shift} if shift else {}
    return small("energy-gap", data_name="tiny", read=f"{__name__}:read_line", read_options=options)


def classification_target():
    """The network of `fundus` on images whose brightest rows are their grade."""
    return small("fundus", data_name="tiny", read=f"{__name__}:read_corners", read_options={})
