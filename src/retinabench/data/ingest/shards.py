"""Shards of a prepared folder: the images of consecutive records, with the status of each source file.

`images-00000.npy` is written first and `files-00000.parquet` second, so that the second marks a complete shard. A shard
depends on its images and the recipe alone: whenever it is made, it has the same bytes. When the folder is complete,
`files.parquet` replaces the tables of the shards.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from retinabench.core.errors import InputError, printable
from retinabench.core.files import remove, state, write_bytes
from retinabench.core.untrusted import csv_text
from retinabench.data.prepared.shard_files import write_shard
from retinabench.data.preprocessing.corruption import corrupt
from retinabench.data.preprocessing.preprocess import Original, Recipe, describe_original, preprocess_bytes
from retinabench.data.records import Records, to_parquet
from retinabench.data.registry import DATASETS

SHARD, SHARD_BYTES = 128, 100 * 2**20  # a worker holds one shard in memory
SCHEMA = pa.schema(
    [
        ("image_id", pa.string()),
        ("source", pa.string()),
        ("sha256", pa.string()),
        ("bytes", pa.int64()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("status", pa.string()),
        ("reason", pa.string()),
    ]
)
"""One row per image: `sha256`, `bytes`, `width` and `height` of the original file (empty or 0 for drawn images and for
files that do not exist), `status` ('ok' or 'bad') and the `reason` of a bad one."""
STAMPED = SCHEMA.append(pa.field("stamp", pa.string()))


class Shard(NamedTuple):
    """Images to prepare, how, and where to."""

    dataset: str
    image_ids: list[str]
    sources: list[str]
    root: Path | None
    recipe: Recipe
    images: Path
    files: Path


def plan(dataset: str, rows: Records, root: Path | None, recipe: Recipe, out: Path) -> list[Shard]:
    """Cut a data set into shards."""
    step = max(1, min(SHARD, SHARD_BYTES // (3 * recipe.size**2)))
    return [
        Shard(
            dataset,
            [str(name) for name in rows.image_id[first : first + step]],
            [str(source) for source in rows.source[first : first + step]],
            root,
            recipe,
            out / f"images-{first // step:05d}.npy",
            out / f"files-{first // step:05d}.parquet",
        )
        for first in range(0, len(rows), step)
    ]


def is_made(shard: Shard) -> bool:
    """Return whether a shard is complete and undamaged, has no bad file (those are tried again), and its sources are unchanged."""
    if (table := read_files(shard)) is None or not shard.images.is_file():
        return False
    if "damaged" in (state(shard.images), state(shard.files)):
        return False
    stamp = DATASETS.find(shard.dataset).stamp
    stamps = [stamp(source, shard.root) for source in shard.sources]
    return len(bad_rows(table)) == 0 and table["stamp"].to_pylist() == stamps


def read_files(shard: Shard) -> pa.Table | None:
    """Return the table of a shard, or None if there is none that can be read."""
    try:
        return pa.parquet.read_table(shard.files, schema=STAMPED)
    except (OSError, pa.ArrowException):
        return None


def make_shard(shard: Shard) -> int:
    """Read or draw the images of one shard and write them without the bad ones; return the number of its records."""
    if is_made(shard):
        return len(shard.image_ids)
    images, rows = [], []
    dataset = DATASETS.find(shard.dataset)
    for image_id, source in zip(shard.image_ids, shard.sources, strict=True):
        row = {"image_id": image_id, "source": source, "stamp": dataset.stamp(source, shard.root)}
        row |= {"status": "ok", "reason": ""}
        original = Original()
        try:
            if dataset.read is not None:
                drawn = dataset.read(source, shard.root, replace(shard.recipe, corrupt=None))
                images.append(corrupt(drawn, shard.recipe.corrupt, image_id))
            else:
                data, name = dataset.encoded(source, shard.root)
                original = describe_original(data)
                images.append(preprocess_bytes(data, shard.recipe, name, image_id))
        except (InputError, OSError) as error:
            row |= {"status": "bad", "reason": _reason(error)}
        rows.append(row | vars(original))
    side = shard.recipe.size
    write_shard(shard.images, images or np.empty((0, side, side, 3), np.uint8))
    write_bytes(shard.files, to_parquet(pa.Table.from_pylist(rows, STAMPED)), checked=True)
    return len(shard.image_ids)


def _reason(error: InputError | OSError) -> str:
    if isinstance(error, InputError):
        return error.problem
    return f"cannot be read ({error.strerror or error})"


def sweep_files(out: Path) -> None:
    """Delete the tables of the shards, which `files.parquet` replaces."""
    for path in out.glob("files-*.parquet"):
        remove(path)


def bad_rows(table: pa.Table) -> pa.Table:
    """Return the rows of files that could not be read."""
    return table.filter(pa.compute.equal(table["status"], "bad"))


def bad_csv(table: pa.Table) -> bytes:
    """Return the bad files as CSV: image_id, source, reason."""
    columns = ("image_id", "source", "reason")
    rows = [[printable(row[name]) for name in columns] for row in bad_rows(table).to_pylist()]
    return csv_text([columns, *rows]).encode()


def source_sha256(table: pa.Table) -> str:
    """Return one SHA-256 over all source files: two data sets with the same one were made from the same bytes."""
    digest = hashlib.sha256()
    for image_id, sha256 in zip(table["image_id"].to_pylist(), table["sha256"].to_pylist(), strict=True):
        digest.update(f"{image_id}\0{sha256}\n".encode())
    return digest.hexdigest()
