"""Prepared folders: the records of a data set and its images, ready to be read fast.

A prepared folder holds

- `prepare.json`: the settings that it is made from (`core.workspace`), written first;
- `images-00000.npy …`: shards of uint8 images (n, size, size, 3);
- `records.parquet`: the records, in the order of the images;
- `files.parquet`: the status of every source file (`ingest.shards`); files that could not be read have no image and no
  record, and are listed in `bad.csv` as well;
- `truth.npy`, only in those of a concept bank: (n, C) int8 in the order of the records;
- `dataset.json`: name, size, fingerprint, hash of the source; written last, so that it marks a complete folder. It takes the
  place of the file `done` of other folders: folders that version 0.1 prepared have none, and must still be found complete.

Shards differ in length where files were left out; `Prepared.starts` says with which row each begins.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.files import check
from retinabench.core.untrusted import inside
from retinabench.data.dataset import Rows
from retinabench.data.prepared.manifest import AGAIN, COMPLETE, Manifest, PreparedSettings
from retinabench.data.prepared.shard_files import mapped_shard, memory_map
from retinabench.data.records import MODERATE, Records, join, referable
from retinabench.predictions.formats.bounded_parquet import read_table
from retinabench.predictions.formats.npz_format import DAMAGED_ARRAYS


@dataclass(frozen=True, eq=False)
class Prepared:
    """A prepared folder, opened: its records and, memory-mapped, its images.

    Shapes: `truth` (N, C).
    """

    folder: Path
    name: str
    size: int
    fingerprint: str
    records: Records
    shards: tuple[NDArray[np.uint8], ...]
    files_of_shards: tuple[Path, ...] = ()
    graded: bool = True
    referable_from: int = MODERATE
    shifted: Path | None = None
    truth: NDArray[np.int8] | None = None
    settings: PreparedSettings = field(default_factory=PreparedSettings)

    def __reduce__(self) -> tuple[Callable[..., Prepared], tuple[Path, Path | None, int]]:
        """Pickle as paths, since pickling the shards would copy all images."""
        return _reopen, (self.folder, self.shifted, self.referable_from)

    @property
    def label(self) -> NDArray[Any]:
        """(N,) 1 = referable, by the cut of the task; of a concept bank (N, C) 1, 0 or NaN (unknown), float32."""
        if self.truth is not None:
            return np.where(self.truth < 0, np.float32(np.nan), self.truth.astype(np.float32))
        return referable(self.records.grade, self.referable_from)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, rows: Rows) -> NDArray[np.uint8]:
        """Return images (len(rows), size, size, 3) in the given order, as `Inputs` of a data set."""
        return self.images(rows)

    def images(self, rows: NDArray[np.intp] | Sequence[int]) -> NDArray[np.uint8]:
        """Return images (len(rows), size, size, 3) in the given order."""
        rows = np.asarray(rows, dtype=np.intp)
        shards = np.searchsorted(self.starts, rows, side="right") - 1
        places = rows - self.starts[shards]
        out = np.empty((len(rows), self.size, self.size, 3), np.uint8)
        for shard in np.unique(shards).tolist():
            self.check_shard(shard)
        # One copy per image, directly to its place: rows in random order hardly ever share a shard.
        for image, shard, place in zip(out, shards.tolist(), places.tolist(), strict=True):
            image[:] = self.shards[shard][place]
        return out

    def check_shard(self, number: int) -> None:
        """Compare a shard with its checksum, once in a process."""
        if number not in self._whole and number < len(self.files_of_shards):
            check(self.files_of_shards[number], AGAIN)
            self._whole.add(number)

    @cached_property
    def _whole(self) -> set[int]:
        """The shards that have been checked."""
        return set()

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """(shards,) the row with which each shard begins."""
        return np.cumsum([0, *(len(shard) for shard in self.shards[:-1])])

    @property
    def files(self) -> pa.Table:
        """One row per source file, including those without a record; see `ingest.shards.SCHEMA`."""
        return read_table(check(self.folder / "files.parquet", AGAIN))

    def image(self, image_id: str) -> NDArray[np.uint8] | None:
        """Return the image with that id (size, size, 3), or None."""
        found = np.flatnonzero(self.records.image_id == image_id)
        return self.images(found[:1])[0] if found.size else None


def prepared(folder: Path) -> bool:
    """Tell whether a folder holds a finished data set."""
    return (folder / COMPLETE).is_file()


def open_prepared(folder: str | Path) -> Prepared:
    """Open a folder that `retinabench prepare` has finished; each shard's checksum is compared when it is first read."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(
            "is not a folder", file=folder, hint="Make it with: retinabench prepare DATASET --out DIR"
        )
    if not prepared(folder):
        raise InputError(
            "holds no finished data set (dataset.json is missing)",
            file=folder,
            hint="Make or finish it with: retinabench prepare DATASET --out DIR",
        )
    try:
        about = Manifest.read(folder)
        shards = tuple(mapped_shard(inside(folder, name), about.size) for name in about.shards)
        records = Records.from_parquet(check(inside(folder, "records.parquet"), AGAIN))
        truth = _truth(folder, about.concepts, len(records))
    except (InputError, *DAMAGED_ARRAYS, OSError, pa.ArrowException) as error:
        if isinstance(error, InputError) and error.file is not None:
            raise
        raise InputError(
            f"is damaged ({error})", file=folder, hint="Delete it and prepare it again."
        ) from None
    if sum(len(shard) for shard in shards) != len(records):
        raise InputError("is damaged (images and records differ in number)", file=folder)
    files = tuple(folder / name for name in about.shards)
    return Prepared(
        folder, about.name, about.size, about.fingerprint, records, shards, files, about.settings.graded,
        truth=truth, settings=about.settings,
    )  # fmt: skip


def _truth(folder: Path, concepts: tuple[str, ...] | None, images: int) -> NDArray[np.int8] | None:
    """Read the truth of a concept bank, None for other data sets."""
    if concepts is None:
        return None
    truth = memory_map(check(inside(folder, "truth.npy"), AGAIN))
    if truth.dtype != np.int8 or truth.shape != (images, len(concepts)):
        raise ValueError(f"truth.npy holds {truth.dtype} of shape {truth.shape}")
    return truth


def open_data(folder: str | Path, shifted: str | Path | None = None) -> Prepared:
    """Open a prepared folder, and merge the images of another one into it as its domain ``shifted``.

    Ids are unchanged unless both folders use one id for different images or patients: then those of the second folder
    are prefixed with its name. Damaged copies of the images of the first folder keep its patients.
    """
    first = open_prepared(folder)
    return first if shifted is None else with_shifted(first, open_prepared(shifted))


def with_shifted(first: Prepared, second: Prepared) -> Prepared:
    """Return two data sets as one, the second as the domain ``shifted``; see `open_data`."""
    if first.fingerprint == second.fingerprint:
        raise InputError("holds the same data as --data", file=second.folder, hint="Name another data set.")
    if first.size != second.size:
        raise InputError(
            f"holds images of {second.size} px, {first.folder} of {first.size} px",
            file=second.folder,
            hint=f"Prepare it again with --size {first.size}.",
        )
    if different := first.settings.other_pixels(second.settings):
        raise InputError(
            f"was prepared with another {', '.join(different)} than {first.folder}",
            file=second.folder,
            hint="Prepare both in the same way.",
        )
    digest = hashlib.sha256(f"{first.fingerprint}+{second.fingerprint}".encode())
    return replace(
        first,
        name=f"{first.name}+{second.name}",
        fingerprint=digest.hexdigest(),
        records=join(
            [first.records, _as_shifted(second, first.records, first.settings.same_source(second.settings))]
        ),
        shards=first.shards + second.shards,
        files_of_shards=first.files_of_shards + second.files_of_shards,
        graded=first.graded and second.graded,
        shifted=second.folder,
    )


def _as_shifted(second: Prepared, first: Records, same_patients: bool) -> Records:
    mine = replace(second.records, domain=np.full(len(second.records), "shifted"))
    for column in ("image_id", "patient_id"):
        if column == "patient_id" and same_patients:
            continue
        ids = getattr(mine, column)
        if np.isin(ids, getattr(first, column)).any():
            mine = replace(mine, **{column: np.char.add(f"{second.name}:", ids)})
    return mine


def _reopen(folder: Path, shifted: Path | None, referable_from: int) -> Prepared:
    return replace(open_data(folder, shifted), referable_from=referable_from)
