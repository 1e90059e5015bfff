"""The contract that every data set fulfils, whether it is in memory or in a prepared folder.

`Dataset` states it. Three classes fulfil it: `ArrayDataset` (tables, texts and small images in memory),
`retinabench.data.tasks.Task` (a prepared folder, divided for a task) and
`retinabench.data.datasets.uci.Regression` (one of the UCI sets with its published random splits).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.intp]
Splits = dict[str, Rows]


class Inputs(Protocol):
    """Inputs that can be indexed by rows: an array, or images that are read when they are asked for."""

    def __len__(self) -> int:
        """Return the number of items N."""

    def __getitem__(self, rows: NDArray[np.intp], /) -> NDArray[Any]:
        """Return the inputs (len(rows), ...) of the given rows, in the given order."""


class Dataset(Protocol):
    """N items with inputs, targets, groups and splits.

    Attributes:
        inputs: Inputs by row, (N, ...), as stored: uint8 images (H, W, 3), real features (D,) or integer tokens (T,).
        targets: (N,) class numbers or real numbers in their own unit; (N, C) for C concepts.
        groups: (N,) name of the group of each item, such as its domain.
        splits: Name of a split -> its rows.
        image_id: (N,) names of the items, or None where they have none.
        patient_id: (N,) names of the patients, or None where they are not known.
    """

    @property
    def inputs(self) -> Inputs: ...  # noqa: D102 - described above

    @property
    def targets(self) -> NDArray[Any]: ...  # noqa: D102

    @property
    def groups(self) -> NDArray[np.str_]: ...  # noqa: D102

    @property
    def splits(self) -> Mapping[str, Rows]: ...  # noqa: D102

    @property
    def image_id(self) -> NDArray[np.str_] | None: ...  # noqa: D102

    @property
    def patient_id(self) -> NDArray[np.str_] | None: ...  # noqa: D102

    def __len__(self) -> int:
        """Return the number of items N."""


@dataclass(frozen=True, eq=False)
class ArrayDataset:
    """A data set in memory; see `Dataset`.

    Shapes: `inputs` (N, ...), `targets` (N,), `groups` (N,), `image_id` (N,), `patient_id` (N,).
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    groups: NDArray[np.str_]
    splits: Mapping[str, Rows] = field(default_factory=dict)
    image_id: NDArray[np.str_] | None = None
    patient_id: NDArray[np.str_] | None = None

    def __post_init__(self) -> None:
        for name in ("inputs", "groups", "image_id", "patient_id"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.targets):
                raise ValueError(f"{name} has {len(column)} rows, targets has {len(self.targets)}")

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: Rows) -> ArrayDataset:
        """Return the given rows, in the given order, as a data set without splits."""
        image_id, patient_id = (
            None if column is None else column[rows] for column in (self.image_id, self.patient_id)
        )
        return ArrayDataset(
            self.inputs[rows],
            self.targets[rows],
            self.groups[rows],
            image_id=image_id,
            patient_id=patient_id,
        )

    def part(self, split: str) -> ArrayDataset:
        """Return the rows of one split."""
        return self.take(self.splits[split])


def concatenate(parts: Mapping[str, ArrayDataset]) -> ArrayDataset:
    """Join data sets into one, of which each is a split, in the given order."""
    ends = np.cumsum([len(part) for part in parts.values()])
    splits = {
        name: np.arange(end - len(part), end) for (name, part), end in zip(parts.items(), ends, strict=True)
    }
    ids: dict[str, NDArray[np.str_] | None] = {}
    for column in ("image_id", "patient_id"):
        values = [getattr(part, column) for part in parts.values()]
        ids[column] = None if any(value is None for value in values) else np.concatenate(values)
    return ArrayDataset(
        np.concatenate([part.inputs for part in parts.values()]),
        np.concatenate([part.targets for part in parts.values()]),
        np.concatenate([part.groups for part in parts.values()]),
        splits,
        **ids,
    )


@dataclass(frozen=True, eq=False)
class ConceptImages:
    """N images and the truth of C concepts about each.

    It is no `Dataset`: an image is made on request and at the size that a question asks for, with masks on the same square,
    so that a collection may be far larger than memory.

    Shapes: `sample_id` (N,), `truth` (N, C), `patient_id` (N,), `masks` (C, H, W).
    """

    sample_id: NDArray[np.str_]
    concepts: tuple[str, ...]
    truth: NDArray[np.int8]
    patient_id: NDArray[np.str_]
    image: Callable[[int, int], NDArray[np.uint8]]
    masks: Callable[[int], NDArray[np.bool_]] | None = None
    without: Callable[[int, int, Collection[str]], NDArray[np.uint8]] | None = None

    def __len__(self) -> int:
        return len(self.sample_id)
