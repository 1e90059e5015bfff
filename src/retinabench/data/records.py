"""Records: one row per image with identity, label and place in a study; no pixels."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.predictions.formats.bounded_parquet import read_table

SPLITS = ("train", "validation", "test")
MODERATE = 2  # the lowest grade that is referable unless a task says otherwise


def referable(grade: NDArray[np.integer], lowest: int = MODERATE) -> NDArray[np.int8]:
    """Return labels (N,) of grades (N,): 1 where the grade is at least `lowest`, else 0.

    This is the only definition of a label; `lowest` is the `referable_from` of the task.
    """
    return (grade >= lowest).astype(np.int8)


@dataclass(frozen=True, eq=False)
class Records:
    """N images: identity, grade and place in the study.

    Shapes: `image_id` (N,), `patient_id` (N,), `eye` (N,), `grade` (N,), `domain` (N,), `split` (N,), `source`
    (N,), `p_referable` (N,).
    """

    image_id: NDArray[np.str_]
    patient_id: NDArray[np.str_]
    eye: NDArray[np.str_]
    grade: NDArray[np.int8]
    domain: NDArray[np.str_]
    split: NDArray[np.str_]
    source: NDArray[np.str_]
    p_referable: NDArray[np.float64]

    def __post_init__(self) -> None:
        n = len(self.image_id)
        if n == 0:
            raise InputError("the data set holds no images")
        for column in fields(self):
            if len(getattr(self, column.name)) != n:
                raise ValueError(
                    f"{column.name} has {len(getattr(self, column.name))} rows, image_id has {n}"
                )
        if len(np.unique(self.image_id)) != n:
            raise InputError("image ids repeat", column="image_id")
        if not np.isin(self.grade, np.arange(5)).all():
            row = int(np.flatnonzero(~np.isin(self.grade, np.arange(5)))[0])
            raise InputError(
                f"grade {self.grade[row]} of image '{self.image_id[row]}' is not one of 0, 1, 2, 3, 4"
            )

    def __len__(self) -> int:
        return len(self.image_id)

    def take(self, rows: NDArray[np.intp] | Sequence[int]) -> Records:
        """Return the given rows, in the given order."""
        return replace(self, **{column.name: getattr(self, column.name)[rows] for column in fields(self)})

    def to_parquet(self) -> bytes:
        """Return the rows as the bytes of a Parquet file."""
        return to_parquet(pa.table({c.name: getattr(self, c.name) for c in fields(self)}))

    @classmethod
    def from_parquet(cls, path: Path) -> Records:
        """Read what `to_parquet` wrote."""
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
    """Return records of columns."""
    ids = np.array(list(image_id), np.str_)

    def column(values: Iterable[str] | str | None, default: NDArray[np.str_]) -> NDArray[np.str_]:
        if values is None:
            return default
        return np.full(len(ids), values) if isinstance(values, str) else np.array(list(values), np.str_)

    return Records(
        image_id=ids,
        patient_id=column(patient_id, ids),
        eye=column(eye, np.full(len(ids), "")),
        grade=np.array(list(grade), np.int8),
        domain=column(domain, ids),
        split=column(split, ids),
        source=column(source, ids),
        p_referable=np.broadcast_to(np.asarray(p_referable, np.float64), len(ids)).copy(),
    )


def join(parts: Sequence[Records]) -> Records:
    """Concatenate records."""
    columns = (column.name for column in fields(Records))
    return Records(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in columns})
