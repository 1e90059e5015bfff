"""Prepared folders: the records of a data set and its images, ready to be read fast.

A prepared folder holds

- `prepare.json`: the settings that it is made from (`core.workspace`), written first;
- `images-00000.npy …`: shards of uint8 images (n, size, size, 3);
- `records.parquet`: the records, in the order of the images;
- `files.parquet`: the status of every source file (`prepare.SCHEMA`); files that could not be read have no image and no
  record, and are listed in `bad.csv` as well;
- `truth.npy`, only in those of a concept bank: (n, C) int8 in the order of the records;
- `features.parquet`, only in those of a table (`tables.py`), instead of images and `files.parquet`;
- `dataset.json`: name, size, fingerprint, hash of the source; written last, so that it marks a complete folder. It takes the
  place of the file `done` of other folders: folders that version 0.1 prepared have none, and must still be found complete.

Shards differ in length where files were left out; `Prepared.starts` says with which row each begins.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, ValidationError, field_validator, model_serializer, model_validator

from retinabench.core.errors import InputError, check, inside, kept_inside, printable
from retinabench.core.files import atomic_write, write_bytes, write_json
from retinabench.core.results import JsonObject
from retinabench.core.settings import Frozen, first_problem
from retinabench.core.version import __version__
from retinabench.data.dataset import MODERATE, Records, join, referable
from retinabench.predictions.io import DAMAGED_ARRAYS, read_table


def mapped_shard(path: Path, size: int) -> NDArray[np.uint8]:
    """Map a shard into memory; one that is no array of images of that size is refused before it is used."""
    shard = memory_map(path)
    if shard.dtype != np.uint8 or shard.shape[1:] != (size, size, 3):
        raise ValueError(f"{path.name} holds {shard.dtype} of shape {shard.shape}")
    return shard


def memory_map(path: Path) -> NDArray[Any]:
    """Map an array into memory, as a plain one: indexing a `memmap` costs more than copying a small image."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # a damaged header that NumPy takes for one of Python 2
        try:
            return np.asarray(np.lib.format.open_memmap(path, mode="r"))
        except UserWarning as warning:
            raise ValueError(f"{path.name}: {warning}") from None


def fingerprint(records: Records, shards: Sequence[Path]) -> str:
    """Return the SHA-256 of the records and every pixel: two folders with one fingerprint hold the same data."""
    digest = hashlib.sha256(records.to_parquet())
    for path in shards:
        with open(kept_inside(path.parent, path), "rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()


def write_shard(path: Path, images: Sequence[NDArray[np.uint8]] | NDArray[np.uint8]) -> None:
    """Write images (n, size, size, 3) atomically as one .npy shard."""
    shape = (len(images), *np.shape(images[0] if len(images) else images)[-3:])
    with atomic_write(path, checked=True) as handle:
        np.lib.format.write_array_header_1_0(handle, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for image in images:  # one by one, without a second copy of the shard in memory
            if image.shape != shape[1:] or image.dtype != np.uint8:
                raise ValueError(f"an image of shape {image.shape} in a shard of {shape[1:]}")
            handle.write(image.tobytes())


COMPLETE = "dataset.json"
FEATURES = "features.parquet"
FORMAT = 2  # of the folder and of the content of every image: raise it when either changes
AGAIN = "Delete the folder and prepare it again."
MAX_SIDE, MAX_NAME = 4096, 200  # pixels of a side, characters of the name: of folders that someone sends
PIXEL_SETTINGS = ("preprocess", "blur", "published")


class PreparedSettings(Frozen):
    """What a folder was prepared with, `content`; None where it does not say, as in folders made by hand."""

    model_config = ConfigDict(extra="ignore", strict=True)

    dataset: str | None = None
    source: str | None = None
    label_table: str | None = None
    corrupt: str | None = None
    preprocess: str | None = None
    blur: int | None = None
    published: bool | None = None
    columns: dict[str, Any] | None = None
    label: str | None = None
    content: JsonObject = Field(default_factory=dict, repr=False)

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, given: Any) -> Any:
        return {**given, "content": given} if isinstance(given, dict) else given

    @model_serializer
    def _given(self) -> JsonObject:
        return self.content

    @property
    def graded(self) -> bool:
        """Whether the labels were read from grades."""
        return "label" not in (self.columns or {}) and not self.label

    @property
    def meaning(self) -> str:
        return "referable retinopathy by its grade" if self.graded else self.label or "what its file of labels says"

    def other_pixels(self, other: PreparedSettings) -> list[str]:
        return [key for key in PIXEL_SETTINGS if getattr(self, key) != getattr(other, key)]

    def same_source(self, other: PreparedSettings) -> bool:
        """Whether one of two folders holds damaged copies of the other's images, so that their patients are the same."""
        damaged = self.corrupt is not None or other.corrupt is not None
        pairs = ((self.source, other.source), (self.label_table, other.label_table))
        return damaged and self.dataset == other.dataset and any(a and a == b for a, b in pairs)


class Manifest(Frozen):
    """What `dataset.json` says; a folder that was made by hand leaves out what may be None."""

    model_config = ConfigDict(extra="ignore")

    name: str
    format: int = FORMAT
    size: int = Field(ge=1, le=MAX_SIDE, strict=True)
    images: int | None = None
    bad: int | None = None
    concepts: tuple[str, ...] | None = None
    fingerprint: str
    source_sha256: str | None = None
    shards: tuple[str, ...]
    features: str | None = None
    settings: PreparedSettings = PreparedSettings()
    version: str | None = None

    @field_validator("name")
    @classmethod
    def _one_line(cls, name: str) -> str:
        if printable(name, MAX_NAME) != name:
            raise ValueError(f"is not a single line of at most {MAX_NAME} characters")
        return name

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        path = kept_inside(folder, folder / COMPLETE)
        content = json.loads(check(path, AGAIN).read_text(encoding="utf-8"))
        if content.get("format") != FORMAT:
            formats = f"(format {content.get('format', 1)}; this one reads format {FORMAT})"
            problem = f"was prepared by another version of retinabench {formats}"
            raise InputError(problem, file=folder, hint="Delete it and prepare it again.")
        return cls.model_validate(content)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A prepared folder, opened: its records and, memory-mapped, its images, or the features of its rows; `truth` (N, C)."""

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
    doubt: str = ""  # of two folders whose labels mean different things
    table: pa.Table | None = None

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

    def images(self, rows: NDArray[np.intp] | Sequence[int]) -> NDArray[np.uint8]:
        """Return images (len(rows), size, size, 3) in the given order."""
        if self.table is not None:
            raise InputError("holds a table and no images", file=self.folder, hint="Name a data set of images.")
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

    def release(self) -> None:
        """Give back the memory of the shards that were read: they are mapped, and the system reads them again."""
        for shard in self.shards:
            mapped = getattr(shard.base, "base", None)
            if isinstance(mapped, mmap.mmap) and hasattr(mapped, "madvise"):
                mapped.madvise(mmap.MADV_DONTNEED)

    def check_shard(self, number: int) -> None:
        """Compare a shard with its checksum, once in a process."""
        if number not in self._whole and number < len(self.files_of_shards):
            check(self.files_of_shards[number], AGAIN)
            self._whole.add(number)

    @cached_property
    def _whole(self) -> set[int]:
        return set()

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """(shards,) the row with which each shard begins."""
        return np.cumsum([0, *(len(shard) for shard in self.shards[:-1])])

    @property
    def files(self) -> pa.Table:
        """One row per source file, including those without a record; see `prepare.SCHEMA`."""
        return read_table(check(self.folder / "files.parquet", AGAIN))

    def image(self, image_id: str) -> NDArray[np.uint8] | None:
        """Return the image with that id (size, size, 3), or None."""
        found = np.flatnonzero(self.records.image_id == image_id)
        return self.images(found[:1])[0] if found.size else None


def complete(
    out: Path,
    records: Records,
    shards: Sequence[Path],
    settings: Mapping[str, object],
    *,
    name: str,
    size: int,
    checked: bool = True,
    **about: Any,
) -> None:
    """Write the records and, last, `dataset.json` of a prepared folder; `about` are further fields of `Manifest`."""
    write_bytes(out / "records.parquet", records.to_parquet(), checked=checked)
    about = {"images": len(records), "version": __version__, "settings": dict(settings), **about}
    digest, names = fingerprint(records, shards), () if "features" in about else tuple(path.name for path in shards)
    manifest = Manifest(name=name, size=size, fingerprint=digest, shards=names, **about)
    write_json(out / COMPLETE, manifest.model_dump(mode="json", exclude_none=True), checked=checked)


def prepared(folder: Path) -> bool:
    return (folder / COMPLETE).is_file()


def open_prepared(folder: str | Path) -> Prepared:
    """Open a folder that `retinabench prepare` has finished; each shard's checksum is compared when it is first read."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError("is not a folder", file=folder, hint="Make it with: retinabench prepare DATASET --out DIR")
    if not prepared(folder):
        hint = "Make or finish it with: retinabench prepare DATASET --out DIR"
        raise InputError("holds no finished data set (dataset.json is missing)", file=folder, hint=hint)
    try:
        about = Manifest.read(folder)
        shards = tuple(mapped_shard(inside(folder, name), about.size) for name in about.shards)
        records = Records.from_parquet(check(inside(folder, "records.parquet"), AGAIN))
        truth = None if about.concepts is None else memory_map(check(inside(folder, "truth.npy"), AGAIN))
        shape = (len(records), len(about.concepts or ()))
        if truth is not None and (truth.dtype != np.int8 or truth.shape != shape):
            raise ValueError(f"truth.npy holds {truth.dtype} of shape {truth.shape}")
        table = None if about.features is None else read_table(check(inside(folder, about.features), AGAIN))
    except (InputError, *DAMAGED_ARRAYS, OSError, pa.ArrowException) as error:
        if isinstance(error, InputError) and error.file is not None:
            raise
        if isinstance(error, ValidationError):
            error = first_problem(error, None, lambda _: [])
        raise InputError(f"is damaged ({error})", file=folder, hint="Delete it and prepare it again.") from None
    if (sum(len(shard) for shard in shards) if table is None else table.num_rows) != len(records):
        raise InputError("is damaged (images and records differ in number)", file=folder)
    files = tuple(folder / name for name in about.shards)
    return Prepared(
        folder, about.name, about.size, about.fingerprint, records, shards, files, about.settings.graded,
        truth=truth, settings=about.settings, table=table,
    )  # fmt: skip


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
        problem = f"holds images of {second.size} px, {first.folder} of {first.size} px"
        raise InputError(problem, file=second.folder, hint=f"Prepare it again with --size {first.size}.")
    if different := first.settings.other_pixels(second.settings):
        problem = f"was prepared with another {', '.join(different)} than {first.folder}"
        raise InputError(problem, file=second.folder, hint="Prepare both in the same way.")
    tables = [one.table for one in (first, second) if one.table is not None]
    if len(tables) == 1 or not all(table.schema.equals(tables[0].schema) for table in tables):
        hint = "Prepare both with the same --features."
        raise InputError(f"has other columns of features than {first.folder}", file=second.folder, hint=hint)
    digest = hashlib.sha256(f"{first.fingerprint}+{second.fingerprint}".encode())
    ours, theirs = first.settings.meaning, second.settings.meaning
    doubt = (
        f"label 1 of '{first.name}' is {ours}, of '{second.name}' {theirs}: unless these are the same, scores on the shifted "
        "images do not show what the shift does"
    )
    return replace(
        first, name=f"{first.name}+{second.name}", fingerprint=digest.hexdigest(),
        records=join([first.records, _as_shifted(second, first.records, first.settings.same_source(second.settings))]),
        shards=first.shards + second.shards, files_of_shards=first.files_of_shards + second.files_of_shards,
        graded=first.graded and second.graded, shifted=second.folder,
        table=pa.concat_tables(tables) if tables else None, doubt="" if ours == theirs else doubt,
    )  # fmt: skip


def _as_shifted(second: Prepared, first: Records, same_patients: bool) -> Records:
    mine = replace(second.records, domain=np.full(len(second.records), "shifted"))
    for column in ("image_id",) if same_patients else ("image_id", "patient_id"):
        ids = getattr(mine, column)
        if np.isin(ids, getattr(first, column)).any():
            mine = replace(mine, **{column: np.char.add(f"{second.name}:", ids)})
    return mine


def _reopen(folder: Path, shifted: Path | None, referable_from: int) -> Prepared:
    return replace(open_data(folder, shifted), referable_from=referable_from)
