"""Records and the data sets that give them."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.predictions.check import Check
from retinabench.predictions.io import read_table

SPLITS = ("train", "validation", "test")
MODERATE = 2  # the lowest grade that is referable unless a task says otherwise


def referable(grade: NDArray[np.integer], lowest: int = MODERATE) -> NDArray[np.int8]:
    """Return labels (N,) of grades (N,): 1 where the grade is at least `lowest`, else 0.

    This is the only definition of a label; `lowest` is the `referable_from` of the task.
    """
    return (grade >= lowest).astype(np.int8)


@dataclass(frozen=True, eq=False)
class Records:
    """N images: identity, grade and place in the study; `image_id`, `patient_id`, `eye`, `grade`, `domain`, `split`, `source`, `p_referable` (N,)."""

    image_id: NDArray[np.str_]
    patient_id: NDArray[np.str_]
    eye: NDArray[np.str_]
    grade: NDArray[np.int8]
    domain: NDArray[np.str_]
    split: NDArray[np.str_]
    source: NDArray[np.str_]
    p_referable: NDArray[np.float64]

    def __post_init__(self) -> None:
        n, check = len(self.image_id), Check(None)
        for name in ("image_id", "patient_id"):  # one form everywhere, so that predictions find their image
            object.__setattr__(self, name, check.identified(name, getattr(self, name))[0])
        if n == 0:
            raise InputError("the data set holds no images")
        for column in fields(self):
            if len(getattr(self, column.name)) != n:
                raise ValueError(f"{column.name} has {len(getattr(self, column.name))} rows, image_id has {n}")
        if len(np.unique(self.image_id)) != n:
            raise InputError("image ids repeat", column="image_id")
        if not np.isin(self.grade, np.arange(5)).all():
            row = int(np.flatnonzero(~np.isin(self.grade, np.arange(5)))[0])
            raise InputError(f"grade {self.grade[row]} of image '{self.image_id[row]}' is not one of 0, 1, 2, 3, 4")

    def __len__(self) -> int:
        return len(self.image_id)

    def take(self, rows: NDArray[np.intp] | Sequence[int]) -> Records:
        return replace(self, **{column.name: getattr(self, column.name)[rows] for column in fields(self)})

    def to_parquet(self) -> bytes:
        return to_parquet(pa.table({c.name: getattr(self, c.name) for c in fields(self)}))

    @classmethod
    def from_parquet(cls, path: Path) -> Records:
        table = read_table(path)
        columns = {column.name: table[column.name].to_numpy() for column in fields(cls)}
        text = {name: values.astype(np.str_) for name, values in columns.items() if values.dtype == object}
        return cls(**{**columns, **text})


def to_parquet(table: pa.Table) -> bytes:
    """Return a table as the bytes of a Parquet file, which depend on its values alone, not on its chunks."""
    sink = io.BytesIO()
    pa.parquet.write_table(table.combine_chunks(), sink)
    return sink.getvalue()


def make_records(
    image_id: Iterable[str],
    grade: Iterable[int],
    *,
    source: Iterable[str] | None = None,
    patient_id: Iterable[str] | None = None,
    eye: Iterable[str] | None = None,
    split: Iterable[str] | str,
    domain: Iterable[str] | str = "in_domain",
    p_referable: ArrayLike = np.nan,
) -> Records:
    ids = np.array(list(image_id), np.str_)

    def column(values: Iterable[str] | str | None, default: NDArray[np.str_]) -> NDArray[np.str_]:
        if values is None:
            return default
        return np.full(len(ids), values) if isinstance(values, str) else np.array(list(values), np.str_)

    return Records(
        ids, column(patient_id, ids), column(eye, np.full(len(ids), "")), np.array(list(grade), np.int8),
        column(domain, ids), column(split, ids), column(source, ids),
        np.broadcast_to(np.asarray(p_referable, np.float64), len(ids)).copy(),
    )  # fmt: skip


def join(parts: Sequence[Records]) -> Records:
    columns = (column.name for column in fields(Records))
    return Records(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in columns})


Rows = NDArray[np.intp]
Splits = dict[str, Rows]
COLUMNS = ("inputs", "targets", "groups", "image_id", "patient_id")  # of an `ArrayDataset`


@dataclass(frozen=True, eq=False)
class ArrayDataset:
    """N items in memory: inputs as stored, targets in their own unit, the group of each item, and the rows of each split.

    Shapes: `inputs` (N, ...), `targets` (N,), `groups` (N,), `image_id` (N,), `patient_id` (N,).
    """

    inputs: NDArray[Any]
    targets: NDArray[Any]
    groups: NDArray[np.str_]
    splits: Mapping[str, Rows] = field(default_factory=dict)
    image_id: NDArray[np.str_] | None = None
    patient_id: NDArray[np.str_] | None = None

    def __post_init__(self) -> None:
        for name in COLUMNS:
            column = getattr(self, name)
            if column is not None and len(column) != len(self.targets):
                raise ValueError(f"{name} has {len(column)} rows, targets has {len(self.targets)}")

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, rows: Rows) -> ArrayDataset:
        """Return the given rows, in the given order, as a data set without splits."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        some: dict[str, Any] = {name: None if column is None else column[rows] for name, column in columns.items()}
        return ArrayDataset(**some)

    def part(self, split: str) -> ArrayDataset:
        return self.take(self.splits[split])


def concatenate(parts: Mapping[str, ArrayDataset]) -> ArrayDataset:
    """Join data sets into one, of which each is a split, in the given order."""
    ends = np.cumsum([len(part) for part in parts.values()])
    splits = {name: np.arange(end - len(part), end) for (name, part), end in zip(parts.items(), ends, strict=True)}
    columns = {name: [getattr(part, name) for part in parts.values()] for name in COLUMNS}
    joined: dict[str, Any] = {
        name: None if any(one is None for one in of) else np.concatenate(of) for name, of in columns.items()
    }
    return ArrayDataset(**joined, splits=splits)


@dataclass(frozen=True, eq=False)
class ConceptImages:
    """N images and the truth of C concepts about each.

    An image is made on request and at the size that a question asks for, with masks on the same square, so that a collection
    may be far larger than memory.
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
