"""The data of the two warm-up targets, whose posteriors are known by quadrature (`reference/quadrature.py`).

`logistic`: two features and two classes, as a linear layer with two outputs. `banana`: whole numbers (a, b), where the training points
have b = 0 and so determine u + v² alone (`models/networks/small.py`); the test points `across` vary a, those `along` vary b.
Both are drawn from the streams of this package, so that they are the same everywhere, and checked by their hash.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.random_streams import numpy_generator
from retinabench.data.dataset import ArrayDataset, concatenate

Floats = NDArray[np.floating]


def read_logistic(source: Path | None) -> ArrayDataset:
    """Return 60 training points, and test points near to them and far from them; `source` must be None."""
    _refuse(source, "logistic")
    generator = numpy_generator(2029, "logistic")
    train = np.rint(generator.uniform(-2, 2, (60, 2)) * 64) / 64
    near, far = _grid(2.0), _grid(8.0)
    inputs = np.concatenate([near, far])
    return _parts(
        (train, train @ [1.5, -1.0] + 0.5, np.full(60, "train")),
        (inputs, inputs @ [1.5, -1.0] + 0.5, np.repeat(["near", "far"], (len(near), len(far)))),
        generator,
    )


def read_banana(source: Path | None) -> ArrayDataset:
    """Return 100 training points on the ridge, and test points across it and along it; `source` must be None."""
    _refuse(source, "banana")
    generator = numpy_generator(2030, "banana")
    train = np.tile([[1.0, 0.0], [-1.0, 0.0]], (50, 1))
    steps = np.linspace(-4, 4, 33)[:, None]
    across, along = steps * [1.0, 0.0], steps * [0.0, 1.0]
    inputs = np.concatenate([across, along])
    return _parts(
        (train, train[:, 0], np.full(len(train), "train")),
        (inputs, inputs.sum(axis=1), np.repeat(["across", "along"], len(steps))),
        generator,
    )


def _parts(
    train: tuple[Floats, Floats, NDArray[np.str_]],
    test: tuple[Floats, Floats, NDArray[np.str_]],
    generator: np.random.Generator,
) -> ArrayDataset:
    """Return inputs with classes drawn at their logits, (inputs, logits, groups) of training and test points."""
    parts = {}
    for name, (inputs, logits, groups) in (("train", train), ("test", test)):
        classes = generator.random(len(inputs)) < 1 / (1 + np.exp(-logits))
        parts[name] = ArrayDataset(inputs.astype(np.float32), classes.astype(np.int64), groups)
    return concatenate(parts)


def _grid(end: float) -> Floats:
    line = np.linspace(-end, end, 10)
    return np.stack([axis.ravel() for axis in np.meshgrid(line, line)], axis=1)


def _refuse(source: Path | None, name: str) -> None:
    if source is not None:
        raise InputError(f"the data of '{name}' come with the package", hint="Leave --data out.")
