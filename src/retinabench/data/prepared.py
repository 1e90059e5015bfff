"""Records: what a data set yields, one row per image, and the prepared folder that keeps them beside the pixels.

A prepared folder holds
- `prepare.json`: what it is made from; written first, so that a second command with other settings is refused;
- `images-00000.npy …`: shards of uint8 pictures (n, size, size, 3), each written whole;
- `records.parquet`: the rows, in the order of the pictures;
- `files.parquet`: what became of every file (`files.py`); those that could not be read have no picture and no record,
  and stand in `bad.csv` too;
- `dataset.json`: name, size, fingerprint, hash of the source; written last: the folder is whole when it is there.

Shards differ in length where files were left out: `Prepared.images` knows where each begins.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from retinabench.core.atomic_files import atomic_write
from retinabench.core.errors import InputError
from retinabench.data.dataset import Rows
from retinabench.data.ingest.ingest_log import to_parquet

FORMAT = 2  # of the folder and of every picture's content: raise it when either changes
SPLITS = ("train", "validation", "test")
MODERATE = 2  # the lowest grade that is referable unless a task says otherwise


def referable(grade: NDArray[np.integer], lowest: int = MODERATE) -> NDArray[np.int8]:
    """Return labels (N,) of grades (N,): 1 where the grade is at least `lowest`, else 0.

    This is the only definition of a label; `lowest` is the `referable_from` of the task.
    """
    return (grade >= lowest).astype(np.int8)


@dataclass(frozen=True, eq=False)
class Records:
    """N images: identity, label and place in the study; no pixels.

    image_id, patient_id, eye ('left', 'right' or ''), domain ('in_domain', 'shifted'), split ('train',
    'validation', 'test') and source (a path below the data set's folder, or an index): (N,) text.
    grade: (N,) 0 … 4, as reported. p_referable: (N,) the true P(grade >= 2), NaN where nobody knows it.
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
        table = pa.parquet.read_table(path)
        columns = {column.name: table[column.name].to_numpy() for column in fields(cls)}
        text = {name: values.astype(np.str_) for name, values in columns.items() if values.dtype == object}
        return cls(**{**columns, **text})


def join(parts: Sequence[Records]) -> Records:
    """Concatenate records."""
    columns = (column.name for column in fields(Records))
    return Records(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in columns})


@dataclass(frozen=True, eq=False)
class Prepared:
    """A prepared folder, opened: its records and, memory-mapped, its pictures.

    graded: False where only 0/1 labels are known and `records.grade` holds the stand-ins 0 and 2. referable_from: the
    lowest grade with label 1, which the task decides. shifted: the folder that is joined to this one (`joining.py`).
    """

    folder: Path
    name: str
    size: int
    fingerprint: str
    records: Records
    shards: tuple[NDArray[np.uint8], ...]
    graded: bool = True
    referable_from: int = MODERATE
    shifted: Path | None = None

    def __reduce__(self) -> tuple[Callable[..., Prepared], tuple[Path, Path | None, int]]:
        """Travel to another process as paths: the pictures themselves would be copied, all of them."""
        return _reopen, (self.folder, self.shifted, self.referable_from)

    @property
    def label(self) -> NDArray[np.int8]:
        """(N,) 1 = referable, by the cut of the task."""
        return referable(self.records.grade, self.referable_from)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, rows: Rows) -> NDArray[np.uint8]:
        """Return images (len(rows), size, size, 3) in the given order, as `Inputs` of a data set."""
        return self.images(rows)

    def images(self, rows: NDArray[np.intp] | Sequence[int]) -> NDArray[np.uint8]:
        """Return pictures (len(rows), size, size, 3) in the given order."""
        rows = np.asarray(rows, dtype=np.intp)
        shards = np.searchsorted(self.starts, rows, side="right") - 1
        places = rows - self.starts[shards]
        out = np.empty((len(rows), self.size, self.size, 3), np.uint8)
        # One copy per picture, straight to its place: rows in random order hardly ever share a shard.
        for picture, shard, place in zip(out, shards.tolist(), places.tolist(), strict=True):
            picture[:] = self.shards[shard][place]
        return out

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """(shards,) the row with which each shard begins."""
        return np.cumsum([0, *(len(shard) for shard in self.shards[:-1])])

    @property
    def files(self) -> pa.Table:
        """What became of every file of the data set, also of those without a record: see `files.py`."""
        return pa.parquet.read_table(self.folder / "files.parquet")

    def image(self, image_id: str) -> NDArray[np.uint8] | None:
        """Return the picture of one image id (size, size, 3), or None where there is none."""
        found = np.flatnonzero(self.records.image_id == image_id)
        return self.images(found[:1])[0] if found.size else None


def open_prepared(folder: str | Path) -> Prepared:
    """Open a folder that `retinabench prepare` has finished.

    Raises `InputError` where it is missing or unfinished.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            "is not a folder", file=folder, hint="Make it with: retinabench prepare DATASET --out DIR"
        )
    if not (folder / "dataset.json").is_file():
        raise InputError(
            "holds no finished data set (dataset.json is missing)",
            file=folder,
            hint="Make or finish it with: retinabench prepare DATASET --out DIR",
        )
    try:
        about = json.loads((folder / "dataset.json").read_text())
        if about.get("format") != FORMAT:
            raise InputError(
                "was prepared by another version of retinabench "
                f"(format {about.get('format', 1)}; this one reads format {FORMAT})",
                file=folder,
                hint="Delete it and prepare it again.",
            )
        # As plain arrays: indexing a `memmap` costs more than copying a small picture.
        mapped = (np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in about["shards"])
        shards = tuple(np.asarray(shard) for shard in mapped)
        records = Records.from_parquet(folder / "records.parquet")
    except InputError:
        raise
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise InputError(
            f"is damaged ({error})", file=folder, hint="Delete it and prepare it again."
        ) from None
    if sum(len(shard) for shard in shards) != len(records):
        raise InputError("is damaged (pictures and records differ in number)", file=folder)
    # `folder` notes there which columns it was told to read.
    graded = "label" not in about.get("settings", {}).get("columns", {})
    return Prepared(folder, about["name"], about["size"], about["fingerprint"], records, shards, graded)


def _reopen(folder: Path, shifted: Path | None, referable_from: int) -> Prepared:
    from retinabench.data.merge import open_data

    return replace(open_data(folder, shifted), referable_from=referable_from)


def fingerprint(records: Records, shards: Sequence[Path]) -> str:
    """SHA-256 over the rows and every pixel: two folders with one fingerprint are the same data."""
    digest = hashlib.sha256(records.to_parquet())
    for path in shards:
        with open(path, "rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()


def write_shard(path: Path, pictures: Sequence[NDArray[np.uint8]] | NDArray[np.uint8]) -> None:
    """Write pictures (n, size, size, 3) as one .npy shard, whole or not at all."""
    shape = (len(pictures), *np.shape(pictures[0] if len(pictures) else pictures)[-3:])
    with atomic_write(path) as handle:
        np.lib.format.write_array_header_1_0(handle, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for picture in pictures:  # one after the other: no second copy of the shard in memory
            if picture.shape != shape[1:] or picture.dtype != np.uint8:
                raise ValueError(f"a picture of shape {picture.shape} in a shard of {shape[1:]}")
            handle.write(picture.tobytes())
