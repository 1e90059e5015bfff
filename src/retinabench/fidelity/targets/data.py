"""The data of a target: training points, test points, and the hash of both."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.data.dataset import ArrayDataset
from retinabench.data.datasets import cifar10, idrid, imdb, medmnist, uci
from retinabench.data.loader import Batches, array_batches
from retinabench.fidelity.targets import fundus
from retinabench.fidelity.targets.target import Target

# (source) -> data set with the splits train and test; source: folder or file of the user, None for what is shipped.
LOADERS: dict[str, Callable[[Path | None], ArrayDataset]] = {
    "fundus": fundus.load,
    "fundus-small": partial(fundus.load, name="fundus-small"),
    "energy-gap": uci.read_gap,
    "energy-gap-wall": partial(uci.read_gap, split=2),
    "idrid": idrid.read_pooled,
    "dermamnist": medmnist.read_dermamnist,
    "retinamnist": medmnist.read_retinamnist,
    "cifar10": cifar10.read,
    "imdb": imdb.read,
}


Scaling = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class Data:
    """Training and test points of a target, in the order that every file keeps.

    scaling: mean and deviation of the channels of pictures in [0, 1], None for those of the training points.
    """

    train: ArrayDataset
    test: ArrayDataset
    scaling: Scaling | None = None

    @cached_property
    def sha256(self) -> str:
        """Of dtype, shape and bytes of all arrays as they are stored, before any standardising."""
        digest = hashlib.sha256()
        for points in (self.train, self.test):
            for array in (points.inputs, points.targets, np.array(points.groups.tolist(), "S")):
                digest.update(f"{array.dtype.str}{array.shape}".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def load(target: Target, source: Path | None = None) -> Data:
    """Return the data of a target.

    Raises `InputError` where they are absent, of another size, or not those of the target's definition.
    """
    found = LOADERS[target.loader](source)
    train, test = found.part("train"), found.part("test")
    stated = target.mean is not None and target.std is not None
    data = Data(train, test, (target.mean, target.std) if stated else None)  # type: ignore[arg-type]
    if len(train) != target.train:
        raise InputError(
            f"holds {len(train)} training points; the target '{target.name}' has {target.train}", file=source
        )
    if target.sha256 and data.sha256 != target.sha256:
        raise InputError(
            f"is not the data of the target '{target.name}' (SHA-256 {data.sha256[:12]}…, not {target.sha256[:12]}…)",
            file=source,
            hint="The benchmark compares posteriors of the same data only.",
        )
    return data


def labels(data: Data) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return training and test targets as likelihoods take them, (N,): classes int64, or real targets float32.

    Real targets have mean 0 and deviation 1 over the training rows: predictions are in that unit.
    """
    train, test = data.train.targets, data.test.targets
    if train.dtype.kind == "i":
        return train, test
    mean, deviation = train.mean(), train.std()
    return ((train - mean) / deviation).astype(np.float32), ((test - mean) / deviation).astype(np.float32)


def standardised(data: Data) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return training and test inputs as networks take them, (N, ...), float32.

    Pictures (N, H, W, 3), uint8, become (N, 3, H, W) with channels less their mean, over their deviation (`scaling`);
    numbers (N, D) have columns of mean 0 and deviation 1 over the training rows; tokens (N, T), integers, stay.
    """
    train, test = data.train.inputs, data.test.inputs
    axes: int | tuple[int, ...] = 0
    if train.dtype == np.uint8:
        axes = (0, 1, 2)
    elif np.issubdtype(train.dtype, np.integer):
        return train, test  # tokens
    if data.scaling is not None:
        mean, deviation = (255 * np.array(values) for values in data.scaling)
    else:
        mean, deviation = train.mean(axis=axes, dtype=np.float64), train.std(axis=axes, dtype=np.float64)
    scaled = [((inputs - mean) / deviation).astype(np.float32) for inputs in (train, test)]
    if train.dtype == np.uint8:
        scaled = [np.ascontiguousarray(inputs.transpose(0, 3, 1, 2)) for inputs in scaled]
    return scaled[0], scaled[1]


def point_batches(data: Data, batch_size: int, seed: int, device: torch.device) -> Batches:
    """Return the batches of all training points of a target; none is held out: a posterior is that of all its data."""
    return array_batches(standardised(data)[0], labels(data)[0], batch_size, seed, device)
