"""One shard: the pictures of some consecutive images, and beside it, until the folder is whole, what became of each file.

`images-00000.npy` is written first and `files-00000.parquet` second: where the second is there, the first is whole. A
shard depends on its images and the recipe alone, so whoever makes it, whenever and how often, writes the same bytes.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from retinabench.core.atomic_files import write_bytes
from retinabench.core.errors import InputError
from retinabench.data.ingest.ingest_log import SCHEMA, bad_rows, table_of, to_parquet
from retinabench.data.prepared import Records, write_shard
from retinabench.data.preprocessing.preprocess import Original, Recipe, originals
from retinabench.data.registry import find_dataset

SHARD, SHARD_BYTES = 128, 100 * 2**20  # a worker holds one shard in memory
STAMPED = SCHEMA.append(pa.field("stamp", pa.string()))


class Shard(NamedTuple):
    """Which images to prepare, how, and where to."""

    dataset: str
    image_ids: list[str]
    sources: list[str]
    root: Path | None
    recipe: Recipe
    pictures: Path
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
    """Tell whether a shard is whole, has no bad file (those are tried again), and its files are still the same."""
    if (table := read_files(shard)) is None or not shard.pictures.is_file():
        return False
    stamp = find_dataset(shard.dataset).stamp
    stamps = [stamp(source, shard.root) for source in shard.sources]
    return len(bad_rows(table)) == 0 and table["stamp"].to_pylist() == stamps


def read_files(shard: Shard) -> pa.Table | None:
    """Return the table that lies beside a shard, or None where there is none that can be read."""
    try:
        return pa.parquet.read_table(shard.files, schema=STAMPED)
    except (OSError, pa.ArrowException):
        return None


def make_shard(shard: Shard) -> int:
    """Read or draw the pictures of one shard and write them, bad ones left out; return how many images it is for."""
    another_command_finished = (shard.pictures.parent / "dataset.json").is_file()
    if not another_command_finished and not is_made(shard):
        pictures, rows = [], []
        dataset = find_dataset(shard.dataset)
        for image_id, source in zip(shard.image_ids, shard.sources, strict=True):
            row = {"image_id": image_id, "source": source, "stamp": dataset.stamp(source, shard.root)}
            row |= {"status": "ok", "reason": ""}
            with originals() as found:
                try:
                    pictures.append(dataset.read(source, shard.root, shard.recipe))
                except (InputError, OSError) as error:
                    row |= {"status": "bad", "reason": _reason(error)}
            rows.append(row | vars(found[-1] if found else Original("", 0, 0, 0)))
        side = shard.recipe.size
        write_shard(shard.pictures, pictures or np.empty((0, side, side, 3), np.uint8))
        write_bytes(shard.files, to_parquet(table_of(rows, STAMPED)))
    return len(shard.image_ids)


def _reason(error: InputError | OSError) -> str:
    if isinstance(error, InputError):
        return error.problem
    return f"cannot be read ({error.strerror or error})"


def sweep_files(out: Path) -> None:
    """Delete the tables beside the shards: `files.parquet` holds them now."""
    for path in out.glob("files-*.parquet"):
        with contextlib.suppress(FileNotFoundError):  # another command sweeps too
            path.unlink()
