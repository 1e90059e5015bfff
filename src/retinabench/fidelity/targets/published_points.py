"""Test points that are not a target's own: inputs and groups that the owner of a board published (`leaderboard/hidden.py`)."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.data.dataset import ArrayDataset
from retinabench.fidelity.targets.data import TargetData
from retinabench.fidelity.targets.target import Target
from retinabench.predictions.formats import DAMAGED_ARRAYS, read_member

HINT = "An NPZ with inputs (M, ...), group (M,) and, for the owner, targets (M,)."


def with_points(target: Target, data: TargetData, points: Path) -> TargetData:
    """Return the data of a target with published points, whose labels are not known, instead of its test points."""
    arrays = read_points(points, target, data)
    unknown = np.zeros(len(arrays["group"]), data.train.targets.dtype)
    return TargetData(data.train, ArrayDataset(arrays["inputs"], unknown, arrays["group"]), data.scaling)


def read_points(path: Path, target: Target, data: TargetData, *further: str) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file of points, checked against the training points."""
    arrays = members(path, ("inputs", "group", *further))
    inputs, train = arrays["inputs"], data.train.inputs
    if inputs.ndim < 2 or inputs.shape[1:] != train.shape[1:] or inputs.dtype != train.dtype:
        raise InputError(
            f"is {inputs.dtype} {inputs.shape}; '{target.name}' takes {train.dtype} (M, {', '.join(map(str, train.shape[1:]))})",
            file=path,
            column="inputs",
        )
    if inputs.dtype.kind == "f" and not np.isfinite(inputs).all():
        raise InputError("holds a value that is not finite", file=path, column="inputs")
    for name, values in arrays.items():
        if len(values) != len(inputs) or not len(inputs):
            raise InputError(f"holds {len(values)} values of {len(inputs)} points", file=path, column=name)
    if arrays["group"].dtype.kind != "U":
        raise InputError("is not text", file=path, column="group")
    foreign = {name.partition("-")[0] for name in arrays["group"].tolist()} - set(target.groups)
    if foreign:
        raise InputError(
            f"names '{min(foreign)}'; the groups of '{target.name}' are {', '.join(target.groups)}",
            file=path,
            column="group",
        )
    if "targets" in arrays:
        _check_targets(path, arrays["targets"], target, data)
    return arrays


def _check_targets(path: Path, targets: NDArray[Any], target: Target, data: TargetData) -> None:
    wanted = data.train.targets.dtype
    if targets.ndim != 1 or targets.dtype != wanted:
        raise InputError(
            f"is {targets.dtype}, needed are {wanted} of each point", file=path, column="targets"
        )
    if target.likelihood == "categorical" and not ((targets >= 0) & (targets < target.outputs)).all():
        row = int(np.flatnonzero((targets < 0) | (targets >= target.outputs))[0])
        raise InputError(
            f"is {targets[row]}, and there are the classes 0 to {target.outputs - 1}",
            file=path,
            row=row + 1,
            column="targets",
        )


def members(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return some arrays of an NPZ by name; raises `InputError` where one is absent or damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            missing = [name for name in names if name not in found]
            if missing:
                raise InputError(f"holds no array '{missing[0]}'", file=path, hint=HINT)
            return {name: read_member(path, archive, found[name], name) for name in names}
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from None
    except DAMAGED_ARRAYS:
        raise InputError("is no whole NPZ", file=path, hint=HINT) from None
