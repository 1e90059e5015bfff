"""Prepare a data set: every image once, in parallel, into shards; a killed command continues.

A file that cannot be read does not stop the others: all files are read, and then the command fails with a table of the
bad ones, or leaves them out. A command that continues reads bad files again, and makes the shards again whose files have
changed since. A complete folder is never changed.

`images-00000.npy` is written first and `files-00000.parquet` second, so that the second marks a complete shard. A shard
depends on its images and the recipe alone: whenever it is made, it has the same bytes. When the folder is complete,
`files.parquet` replaces the tables of the shards.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from retinabench.core.errors import QUIET, InputError, Progress, csv_text, printable, state
from retinabench.core.files import remove, sweep, write_bytes
from retinabench.core.results import JsonObject
from retinabench.core.subprocesses import in_processes
from retinabench.core.workspace import Workspace
from retinabench.data.archives import fetch
from retinabench.data.dataset import Records, to_parquet
from retinabench.data.labels import Survey
from retinabench.data.prepared import COMPLETE, FORMAT, Prepared, complete, open_prepared, write_shard
from retinabench.data.preprocessing.corruption import corrupt
from retinabench.data.preprocessing.preprocess import Original, Recipe, describe_original, preprocess_bytes
from retinabench.data.registry import DATASETS

SHARD, SHARD_BYTES = 128, 100 * 2**20  # a worker holds one shard in memory

SCHEMA = pa.schema([
    ("image_id", pa.string()), ("source", pa.string()), ("sha256", pa.string()), ("bytes", pa.int64()),
    ("width", pa.int32()), ("height", pa.int32()), ("status", pa.string()), ("reason", pa.string()),
])  # fmt: skip
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
    step = max(1, min(SHARD, SHARD_BYTES // (3 * recipe.size**2)))
    return [
        Shard(
            dataset, rows.image_id[first : first + step].tolist(), rows.source[first : first + step].tolist(), root, recipe,
            out / f"images-{first // step:05d}.npy", out / f"files-{first // step:05d}.parquet",
        )
        for first in range(0, len(rows), step)
    ]  # fmt: skip


def is_made(shard: Shard) -> bool:
    """Return whether a shard is complete and undamaged, has no bad file (those are tried again), and its sources are unchanged."""
    if (table := read_files(shard)) is None or not shard.images.is_file():
        return False
    if "damaged" in (state(shard.images), state(shard.files)):
        return False
    stamps = [DATASETS.find(shard.dataset).stamp(source, shard.root) for source in shard.sources]
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
        except InputError as error:
            row |= {"status": "bad", "reason": error.problem}
        except OSError as error:
            row |= {"status": "bad", "reason": f"cannot be read ({error.strerror or error})"}
        rows.append(row | vars(original))
    side = shard.recipe.size
    write_shard(shard.images, images or np.empty((0, side, side, 3), np.uint8))
    write_bytes(shard.files, to_parquet(pa.Table.from_pylist(rows, STAMPED)), checked=True)
    return len(shard.image_ids)


def bad_rows(table: pa.Table) -> pa.Table:
    return table.filter(pa.compute.equal(table["status"], "bad"))


OnBad = Literal["fail", "skip"]


def prepare(
    name: str,
    out: Path,
    *,
    recipe: Recipe,
    source: Path | None = None,
    workers: int | None = None,
    on_bad: OnBad = "fail",
    progress: Progress = QUIET,
    **options: Any,
) -> Prepared:
    """Prepare a data set into a folder, or continue there; return it opened. A second command in the same folder waits until the first one has finished."""
    survey = Survey(skips=on_bad == "skip")
    dataset = DATASETS.find(name)
    if dataset.read is not None and recipe.corrupt is not None and recipe.preprocess == "graham":
        problem = f"images of '{name}' are not read from files and cannot be damaged before Graham's preprocessing"
        raise InputError(problem, hint="Use --preprocess crop or none.")
    rows = dataset.records(source, survey=survey, **options)
    content = "".join(repr(getattr(rows, column.name).tolist()) for column in fields(rows))
    settings = {
        "dataset": name,
        **{key: value for key, value in vars(recipe).items() if key != "corrupt"},
        # Without damage it is not named, as in folders of earlier versions.
        **({} if recipe.corrupt is None else {"corrupt": str(recipe.corrupt)}),
        **({"label": dataset.label} if dataset.label else {}),
        "format": FORMAT,
        "source": place_of(source),
        "label_table": hashlib.sha256(content.encode()).hexdigest(),  # the order must not change between two commands
        **options,
    }
    if Path(settings.get("labels") or "").is_absolute():  # a folder that someone sends on does not tell where it lay
        settings["labels"] = Path(settings["labels"]).name
    survey.check(out, on_bad)
    workspace = Workspace(out, "prepared data set", "prepare.json")
    begin_folder(workspace, settings)
    sweep(out)
    if not (out / COMPLETE).is_file() or next(out.glob("files-*.parquet"), None):
        with workspace.lock(wait=True, say=progress.say):
            if not (out / COMPLETE).is_file():
                survey.write(out / "left_out.csv")
                for note in survey.lines():
                    progress.say(f"note: {note}")
                shards = plan(name, rows, source, recipe, out)
                _make(shards, f"Preparing {name} at {recipe.size} px", workers, progress)
                _finish(out, rows, shards, settings, on_bad)
            for path in out.glob("files-*.parquet"):
                remove(path)
    data = open_prepared(out)
    if on_bad == "fail" and (left_out := bad_rows(data.files).num_rows):
        problem = f"was prepared without {left_out:,} files that could not be read (bad.csv)"
        hint = "Accept that with --on-bad skip, or delete the folder and prepare it again."
        raise InputError(problem, file=out, hint=hint)
    return data


def dataset_options(name: str, source: Path | None, *, column: Sequence[str] | None = None, **given: Any) -> JsonObject:
    dataset = DATASETS.find(name)
    options = {key: value for key, value in given.items() if value is not None}
    if roles := columns_of_roles(column or ()):
        options["columns"] = roles
    dataset.check_options(name, source, options)
    return options


def columns_of_roles(pairs: Sequence[str]) -> dict[str, str]:
    """Return role -> column of the words ROLE=NAME of a command line."""
    found = {}
    for pair in pairs:
        role, equals, heading = pair.partition("=")
        if not (role and equals and heading):
            raise InputError(f"--column {pair} is not ROLE=NAME", hint="For example: --column grade=icdr")
        found[role] = heading
    return found


def download_source(name: str, source: Path | None, size: int, progress: Progress) -> None:
    dataset = DATASETS.find(name)
    if dataset.remote is None or source is None:
        raise InputError(f"{name} has no direct download", hint=dataset.steps)
    fetch(dataset.remote(size), source, progress)


def begin_folder(workspace: Workspace, settings: JsonObject) -> None:
    """Write the settings into a new folder, or refuse a folder that was begun with others."""
    begun = workspace.manifest()
    if begun is not None and begun.get("format") != settings["format"]:
        hint = "Choose another --out, or delete the folder and prepare it again."
        problem = "holds a data set prepared by another version of retinabench"
        raise InputError(problem, file=workspace.folder, hint=hint)

    def without_path(manifest: JsonObject) -> JsonObject:  # which folders of earlier versions hold as the source
        source = manifest.get("source")
        return {**manifest, "source": place_of(source)} if source and Path(source).is_absolute() else manifest

    hint = "Choose another --out, or delete the folder."
    workspace.begin(settings, decisive=without_path, empty=True, hint=hint)


def place_of(source: str | Path | None) -> str | None:
    """Return name and hash of a path: a prepared folder that someone sends on does not tell where its source lay."""
    if source is None:
        return None
    path = Path(source).resolve()
    return f"{path.name} ({hashlib.sha256(str(path).encode()).hexdigest()[:12]})"


def _make(shards: list[Shard], what: str, workers: int | None, progress: Progress) -> None:
    """Make the shards that are missing, hold a bad file, or whose files have changed."""
    missing = [shard for shard in shards if not is_made(shard)]
    if again := sum(shard.files.is_file() for shard in missing):
        progress.say(f"{again:,} parts are made again because a file in them was bad or has changed")
    images = sum(len(shard.image_ids) for shard in missing)
    with progress.track(what, images, unit="images") as advance:
        for _, done in in_processes(make_shard, missing, min(workers or os.cpu_count() or 1, len(missing))):
            advance(done)


def _finish(out: Path, rows: Records, shards: list[Shard], settings: JsonObject, on_bad: OnBad) -> None:
    """Write the tables and, last, `dataset.json`; or fail if files are bad and are not to be skipped."""
    tables = [table for shard in shards if (table := read_files(shard)) is not None]
    files = pa.concat_tables(tables).select(SCHEMA.names)
    if count := (bad := bad_rows(files)).num_rows:
        columns, found = ("image_id", "source", "reason"), bad.to_pylist()
        lines = [[printable(row[name]) for name in columns] for row in found]
        write_bytes(out / "bad.csv", csv_text([columns, *lines]).encode())
        if on_bad == "fail" or count == len(rows):
            few = f"; the other {len(rows) - 1:,} are good"
            others = f"; {count:,} of {len(rows):,} files are bad" if count > 1 else few
            skip = ", or leave them out with --on-bad skip" if count < len(rows) else ""
            problem = f"{found[0]['reason'].rstrip('.')}{others}, see {out / 'bad.csv'}"
            hint = f"Repair or replace them and repeat the command{skip}."
            raise InputError(problem, file=Path(shards[0].root or "") / found[0]["source"], hint=hint)
    else:
        (out / "bad.csv").unlink(missing_ok=True)
    good = rows.take((files["status"].to_numpy() == "ok").nonzero()[0])
    write_bytes(out / "files.parquet", to_parquet(files), checked=True)
    name = "-".join([settings["dataset"], *settings.get("corrupt", "").split(":")]).strip("-")
    # Two data sets with one digest of their sources were made from the same bytes.
    pairs = zip(files["image_id"].to_pylist(), files["sha256"].to_pylist(), strict=True)
    digest = hashlib.sha256("".join(f"{image}\0{sha256}\n" for image, sha256 in pairs).encode()).hexdigest()
    images, size = [shard.images for shard in shards], settings["size"]
    complete(out, good, images, settings, name=name, size=size, bad=count, source_sha256=digest)
