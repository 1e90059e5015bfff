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
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from retinabench.core.atomic_files import atomic_write
from retinabench.core.checksums import check
from retinabench.core.errors import InputError, printable
from retinabench.core.results import JsonObject
from retinabench.core.untrusted.paths import inside, kept_inside
from retinabench.data.dataset import Rows
from retinabench.data.records import MODERATE, Records, join, referable
from retinabench.predictions.formats.bounded_parquet import read_table
from retinabench.predictions.formats.npz_format import DAMAGED_ARRAYS

FORMAT = 2  # of the folder and of the content of every image: raise it when either changes
AGAIN = "Delete the folder and prepare it again."
MAX_SIDE, MAX_NAME = 4096, 200  # pixels of a side, characters of the name: of folders that someone sends
PIXEL_SETTINGS = ("preprocess", "blur", "published")


@dataclass(frozen=True, eq=False)
class Prepared:
    """A prepared folder, opened: its records and, memory-mapped, its images.

    Args:
        folder: The folder.
        name: Name of the data set.
        size: Side of the images, in pixels.
        fingerprint: SHA-256 of records and pixels.
        records: One row per image.
        shards: Memory-mapped images, in the order of the records; `check_shard` before a shard is read.
        files_of_shards: Their files.
        graded: False if only labels 0/1 are known and `records.grade` holds 0 and 2 in their place.
        referable_from: Lowest grade with label 1, set by the task.
        shifted: The folder that is merged with this one as the shifted domain (`open_data`).
        truth: (N, C) 1, 0 or -1 (unknown), where it holds the samples of a concept bank.
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
        """Compare a shard with its checksum, once in a process.

        Raises:
            InputError: It is damaged.
        """
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
    return (folder / "dataset.json").is_file()


def open_prepared(folder: str | Path) -> Prepared:
    """Open a folder that `retinabench prepare` has finished; each shard's checksum is compared when it is first read.

    Args:
        folder: The prepared folder.

    Returns:
        Its records and memory-mapped images.

    Raises:
        InputError: The folder is missing, incomplete, damaged, or of another format.
    """
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
        about = _read_about(folder)
        shards = tuple(_mapped(inside(folder, name), about["size"]) for name in about["shards"])
        records = Records.from_parquet(check(inside(folder, "records.parquet"), AGAIN))
        truth = _truth(folder, about.get("concepts"), len(records))
    except (InputError, *DAMAGED_ARRAYS, OSError, pa.ArrowException) as error:
        if isinstance(error, InputError) and error.file is not None:
            raise
        raise InputError(
            f"is damaged ({error})", file=folder, hint="Delete it and prepare it again."
        ) from None
    if sum(len(shard) for shard in shards) != len(records):
        raise InputError("is damaged (images and records differ in number)", file=folder)
    # The data set `folder` notes which columns it was told to read.
    graded = "label" not in about.get("settings", {}).get("columns", {})
    files = tuple(folder / name for name in about["shards"])
    return Prepared(
        folder, about["name"], about["size"], about["fingerprint"], records, shards, files, graded, truth=truth
    )  # fmt: skip


def _read_about(folder: Path) -> JsonObject:
    """Read `dataset.json`; raise where another version wrote it, or where it says something of another kind."""
    path = kept_inside(folder, folder / "dataset.json")
    about: JsonObject = json.loads(check(path, AGAIN).read_text(encoding="utf-8"))
    if about.get("format") != FORMAT:
        raise InputError(
            "was prepared by another version of retinabench "
            f"(format {about.get('format', 1)}; this one reads format {FORMAT})",
            file=folder,
            hint="Delete it and prepare it again.",
        )
    _check_about(about)
    return about


def _truth(folder: Path, concepts: object, images: int) -> NDArray[np.int8] | None:
    """Read the truth of a concept bank, None for other data sets."""
    if concepts is None:
        return None
    truth = _memory_map(check(inside(folder, "truth.npy"), AGAIN))
    if not isinstance(concepts, list) or truth.dtype != np.int8 or truth.shape != (images, len(concepts)):
        raise ValueError(f"truth.npy holds {truth.dtype} of shape {truth.shape}")
    return truth


def _check_about(about: JsonObject) -> None:
    """Raise where `dataset.json` says something of another kind than this version writes."""
    kinds = {"name": str, "size": int, "fingerprint": str, "shards": list, "settings": dict}
    for key, kind in kinds.items():
        if not isinstance(about.get(key, {}), kind):
            raise TypeError(f"{key} is {str(about.get(key))[:60]!r}")
    if not isinstance(about.get("settings", {}).get("columns", {}), dict):
        raise TypeError("settings.columns is no table")
    if not 1 <= about["size"] <= MAX_SIDE:
        raise ValueError(f"size is {about['size']}")
    if printable(about["name"], MAX_NAME) != about["name"]:
        raise ValueError(f"name is no line of at most {MAX_NAME} characters")


def _mapped(path: Path, size: int) -> NDArray[np.uint8]:
    """Map a shard into memory; one that is no array of images of that size is refused before it is used."""
    shard = _memory_map(path)
    if shard.dtype != np.uint8 or shard.shape[1:] != (size, size, 3):
        raise ValueError(f"{path.name} holds {shard.dtype} of shape {shard.shape}")
    return shard


def _memory_map(path: Path) -> NDArray[Any]:
    """Map an array into memory, as a plain one: indexing a `memmap` costs more than copying a small image."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # a damaged header that NumPy takes for one of Python 2
        try:
            return np.asarray(np.lib.format.open_memmap(path, mode="r"))
        except UserWarning as told:
            raise ValueError(f"{path.name}: {told}") from None


def open_data(folder: str | Path, shifted: str | Path | None = None) -> Prepared:
    """Open a prepared folder, and merge the images of another one into it as its domain ``shifted``.

    Ids are unchanged unless both folders use one id for different images or patients: then those of the second folder
    are prefixed with its name. Damaged copies of the images of the first folder keep its patients.

    Args:
        folder: A prepared folder.
        shifted: A prepared folder of the shifted domain, or None.

    Returns:
        The data of the first folder, or of both.

    Raises:
        InputError: The images differ in size or preprocessing, or both folders hold the same data.
    """
    first = open_prepared(folder)
    return first if shifted is None else with_shifted(first, open_prepared(shifted), recipe_of(first.folder))


def with_shifted(first: Prepared, second: Prepared, recipe: JsonObject) -> Prepared:
    """Return two data sets as one, the second as the domain ``shifted``; see `open_data`.

    Args:
        first: The images in domain.
        second: The shifted images.
        recipe: The settings that the first were prepared with.

    Raises:
        InputError: The images differ in size or preprocessing, or both are the same data.
    """
    if first.fingerprint == second.fingerprint:
        raise InputError("holds the same data as --data", file=second.folder, hint="Name another data set.")
    if first.size != second.size:
        raise InputError(
            f"holds images of {second.size} px, {first.folder} of {first.size} px",
            file=second.folder,
            hint=f"Prepare it again with --size {first.size}.",
        )
    theirs = recipe_of(second.folder)
    if different := [key for key in PIXEL_SETTINGS if recipe.get(key) != theirs.get(key)]:
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
        records=join([first.records, _as_shifted(second, first.records, _of_one_source(recipe, theirs))]),
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


def _of_one_source(ours: JsonObject, theirs: JsonObject) -> bool:
    """Whether one of two folders holds damaged copies of the other's images, so that their patients are the same."""
    damaged = "corrupt" in ours or "corrupt" in theirs
    alike = any(ours.get(key) and ours.get(key) == theirs.get(key) for key in ("source", "label_table"))
    return damaged and ours.get("dataset") == theirs.get("dataset") and alike


def recipe_of(folder: Path) -> JsonObject:
    """Return the settings with which a folder was prepared; empty for folders made by hand."""
    settings: JsonObject = json.loads(check(folder / "dataset.json", AGAIN).read_text()).get("settings", {})
    return settings


def _reopen(folder: Path, shifted: Path | None, referable_from: int) -> Prepared:
    return replace(open_data(folder, shifted), referable_from=referable_from)


def fingerprint(records: Records, shards: Sequence[Path]) -> str:
    """Return the SHA-256 of the records and every pixel: two folders with one fingerprint hold the same data."""
    digest = hashlib.sha256(records.to_parquet())
    for path in shards:
        with open(path, "rb") as handle:
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
