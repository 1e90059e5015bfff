"""The data of a target: training points, test points, and the hash of both."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.random_streams import numpy_generator
from retinabench.core.registry import import_location
from retinabench.data.dataset import ArrayDataset, concatenate
from retinabench.fidelity.targets.target import Target

Floats = NDArray[np.floating]
Scaling = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, eq=False)
class TargetData:
    """Training and test points of a target, in the order that every file keeps."""

    train: ArrayDataset
    test: ArrayDataset
    scaling: Scaling | None = None
    stated: str = ""  # the hash of the whole, where it is not at hand

    @cached_property
    def sha256(self) -> str:
        """Of dtype, shape and bytes of all arrays as they are stored, before any standardising."""
        if self.stated:
            return self.stated
        digest = hashlib.sha256()
        for points in (self.train, self.test):
            for array in (points.inputs, points.targets, np.array(points.groups.tolist(), "S")):
                digest.update(f"{array.dtype.str}{array.shape}".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


def load(target: Target, source: Path | None = None) -> TargetData:
    if target.points:
        return _points_alone(target, source)
    try:
        reader = import_location(target.read)
    except InputError as error:
        hint = "`read` names a function as package.module:function."
        raise InputError(f"the reader of the target '{target.name}': {error}", hint=hint) from error
    found = reader(source, **target.read_options)
    scaling = (target.mean, target.std) if target.mean is not None and target.std is not None else None
    data = TargetData(found.part("train"), found.part("test"), scaling)
    if len(data.train) != target.train:
        problem = f"holds {len(data.train)} training points; the target '{target.name}' has {target.train}"
        raise InputError(problem, file=source)
    if target.sha256 and data.sha256 != target.sha256:
        raise InputError(
            f"is not the data of the target '{target.name}' (SHA-256 {data.sha256[:12]}…, not {target.sha256[:12]}…)",
            file=source,
            hint="The benchmark compares posteriors of the same data only.",
        )
    return data


def load_for_scoring(target: Target, source: Path | None = None) -> TargetData:
    """Return what scoring needs of a target: of `energy-gap` without a folder its standardised test targets, which come with the package."""
    file = resources.files("retinabench.fidelity.reference").joinpath("shipped", f"{target.name}-test.npz")
    if source is not None or not target.sha256 or not file.is_file():
        return load(target, source)
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        truth, group = arrays["test_targets"], arrays["test_group"]
    unit = np.array([-1, 1], np.float32)  # two targets of mean 0 and std 1, so that the others stay in their unit
    train, test = (
        ArrayDataset(np.empty((len(y), 1), np.float32), y, g) for y, g in ((unit, group[:2]), (truth, group))
    )
    return TargetData(train, test, stated=target.sha256)


def _points_alone(target: Target, source: Path | None) -> TargetData:
    """Return the test points of a target without data: their numbers as inputs, and no training points."""
    if source is not None:
        raise InputError(f"'{target.name}' is scored on predictions alone", file=source, hint="Leave --data out.")
    group = np.repeat(list(target.points), list(target.points.values()))
    kind = np.int64 if target.likelihood == "categorical" else np.float32
    none = ArrayDataset(np.empty((0, 1), np.int64), np.empty(0, kind), np.empty(0, group.dtype))
    return TargetData(none, ArrayDataset(np.arange(len(group))[:, None], np.zeros(len(group), kind), group))


def refuse_source(source: Path | None, name: str) -> None:
    if source is not None:
        raise InputError(f"the data of '{name}' come with the package", hint="Leave --data out.")


def read_shipped(
    source: Path | None, name: str, referable_from: int | None = None, train: int | None = None
) -> ArrayDataset:
    """Return arrays that come with the package, with the splits ``train``, all of it or its first points, and ``test``."""
    refuse_source(source, name)
    file = resources.files("retinabench.fidelity.reference").joinpath("shipped", f"{name}-data.npz")
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        parts = {
            part: ArrayDataset(*(arrays[f"{part}_{column}"] for column in ("inputs", "targets", "group")))
            for part in ("train", "test")
        }
    parts["train"] = parts["train"].take(np.arange(len(parts["train"]))[:train])
    if referable_from is not None:
        for part, points in parts.items():
            parts[part] = replace(points, targets=(points.targets >= referable_from).astype(np.int64))
    return concatenate(parts)


def labels(data: TargetData) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return training and test targets as likelihoods take them, (N,): classes int64, or real targets float32.

    Real targets have mean 0 and std 1 over the training rows; predictions are in that unit.
    """
    train, test = data.train.targets, data.test.targets
    if train.dtype.kind == "i":
        return train, test
    mean, std = train.mean(), train.std()
    return ((train - mean) / std).astype(np.float32), ((test - mean) / std).astype(np.float32)


def standardised(data: TargetData) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return training and test inputs as networks take them, (N, ...), float32.

    Images (N, H, W, 3), uint8, become (N, 3, H, W) with channels less their mean, over their std (`scaling`); numbers
    (N, D) have columns of mean 0 and std 1 over the training rows; tokens (N, T), integers, stay.
    """
    train, test, images = data.train.inputs, data.test.inputs, data.train.inputs.dtype == np.uint8
    if not images and np.issubdtype(train.dtype, np.integer):
        return train, test  # tokens
    if data.scaling is not None:
        mean, std = ((255 if images else 1) * np.array(values) for values in data.scaling)
    else:
        axes = (0, 1, 2) if images else (0,)
        mean, std = train.mean(axis=axes, dtype=np.float64), train.std(axis=axes, dtype=np.float64)
    scaled = [((inputs - mean) / std).astype(np.float32) for inputs in (train, test)]
    if images:
        scaled = [np.ascontiguousarray(inputs.transpose(0, 3, 1, 2)) for inputs in scaled]
    return scaled[0], scaled[1]


def read_logistic(source: Path | None) -> ArrayDataset:
    """Return 60 training points, and test points near to them and far from them; `source` must be None."""
    refuse_source(source, "logistic")
    generator = numpy_generator(2029, "logistic")
    train = np.rint(generator.uniform(-2, 2, (60, 2)) * 64) / 64
    lines = (np.linspace(-end, end, 10) for end in (2.0, 8.0))
    inputs = np.concatenate([np.stack([axis.ravel() for axis in np.meshgrid(one, one)], axis=1) for one in lines])
    return _parts(
        (train, train @ [1.5, -1.0] + 0.5, np.full(60, "train")),
        (inputs, inputs @ [1.5, -1.0] + 0.5, np.repeat(["near", "far"], 100)),
        generator,
    )


def read_banana(source: Path | None) -> ArrayDataset:
    """Return 100 training points on the ridge, and test points across it and along it; `source` must be None."""
    refuse_source(source, "banana")
    generator = numpy_generator(2030, "banana")
    train = np.tile([[1.0, 0.0], [-1.0, 0.0]], (50, 1))
    steps = np.linspace(-4, 4, 33)[:, None]
    inputs = np.concatenate([steps * [1.0, 0.0], steps * [0.0, 1.0]])
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
