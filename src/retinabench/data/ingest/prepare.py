"""Prepare a data set: every picture once, in parallel, into shards that a killed command continues.

Two commands in one folder share the work and end with the same bytes. A file that cannot be read never stops the
others: all are looked at, and then the command fails with a table of the bad ones, or leaves them out. A command that
continues tries bad files again, and makes the shards again whose files have changed since; a finished folder is never
touched, so a repaired or changed file enters only a new one.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from retinabench.core.atomic_files import claim, sweep, write_bytes, write_json
from retinabench.core.errors import InputError, WorkError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.version import __version__
from retinabench.data.ingest.ingest_log import SCHEMA, bad_csv, bad_rows, source_sha256, to_parquet
from retinabench.data.ingest.label_matching import Survey
from retinabench.data.ingest.shards import Shard, is_made, plan, read_files, sweep_files
from retinabench.data.ingest.workers import make_shards
from retinabench.data.prepared import FORMAT, Prepared, Records, fingerprint, open_prepared
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.data.registry import find_dataset

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
    """Prepare data set `name` into the folder `out`, or continue there; return it opened.

    on_bad: `fail` when all files have been looked at and some cannot be read, or `skip` those.

    Raises `InputError` where the source is bad or `out` holds another data set, `WorkError` where the disk is full.
    """
    survey = Survey()
    rows = find_dataset(name).records(source, survey=survey, **options)
    settings = {
        "dataset": name,
        **asdict(recipe),
        "format": FORMAT,
        "source": str(source.resolve()) if source else None,
        "label_table": _digest(rows),
        **{key: str(value) if isinstance(value, Path) else value for key, value in options.items()},
    }
    survey.check(out, on_bad)
    _claim(out, settings)
    sweep(out)
    if not (out / "dataset.json").is_file():
        survey.write(out / "left_out.csv")
        for note in survey.lines():
            progress.say(f"note: {note}")
        shards = plan(name, rows, source, recipe, out)
        _make(shards, f"Preparing {name} at {recipe.size} px", workers, progress)
        _finish(out, rows, shards, settings, on_bad)
    sweep_files(out)
    data = open_prepared(out)
    left_out = bad_rows(data.files).num_rows
    if left_out and on_bad == "fail":
        raise InputError(
            f"was prepared without {left_out:,} files that could not be read (bad.csv)",
            file=out,
            hint="Accept that with --on-bad skip, or delete the folder and prepare it again.",
        )
    return data


def _digest(rows: Records) -> str:
    """SHA-256 of ids, labels and splits: a shard's place in the list must not change between two commands."""
    digest = hashlib.sha256()
    for column in fields(rows):
        digest.update(repr(getattr(rows, column.name).tolist()).encode())
    return digest.hexdigest()


def _claim(out: Path, settings: dict[str, Any]) -> None:
    """Note the settings in an empty folder; refuse a folder that was begun with others."""
    file = out / "prepare.json"
    # Another command may be writing its note this moment, or was killed over it.
    found = [path for path in out.glob("*") if not path.name.lstrip(".").startswith("prepare.json.")]
    if found and not file.is_file():
        raise InputError(
            "is not empty and holds no prepared data set", file=out, hint="Choose another --out."
        )
    claim(file, settings)
    try:
        begun = json.loads(file.read_text())
    except ValueError as error:
        raise InputError(f"is damaged ({error})", file=file, hint="Delete the folder.") from None
    if begun.get("format") != settings["format"]:
        raise InputError(
            "holds a data set prepared by another version of retinabench",
            file=out,
            hint="Choose another --out, or delete the folder and prepare it again.",
        )
    if begun != settings:
        different = sorted(key for key in begun.keys() | settings if begun.get(key) != settings.get(key))
        raise InputError(
            f"holds a data set prepared with another {', '.join(different).replace('_', ' ')}",
            file=out,
            hint="Choose another --out, or delete the folder.",
        )


def _make(shards: list[Shard], what: str, workers: int | None, progress: Progress) -> None:
    """Make the shards that are missing, hold a bad file, or whose files have changed."""
    missing = [shard for shard in shards if not is_made(shard)]
    again = sum(shard.files.is_file() for shard in missing)
    if again:
        progress.say(f"{again:,} parts are made again: a file in them was bad or has changed")
    images = [sum(len(shard.image_ids) for shard in some) for some in (shards, missing)]
    with progress.track(what, images[1], unit="images") as advance:
        for done in make_shards(missing, min(workers or os.cpu_count() or 1, len(missing))):
            advance(done)


def _finish(out: Path, rows: Records, shards: list[Shard], settings: dict[str, Any], on_bad: OnBad) -> None:
    """Write the tables and, last, `dataset.json`; or fail where files are bad and shall not be skipped."""
    tables = [read_files(shard) for shard in shards]
    if any(table is None for table in tables):
        if (out / "dataset.json").is_file():  # another command has finished
            return
        raise WorkError(f"{out}: files vanished while they were needed. Repeat the command.")
    files = pa.concat_tables(tables).select(SCHEMA.names)
    bad = bad_rows(files)
    if bad.num_rows:
        write_bytes(out / "bad.csv", bad_csv(files))
        if on_bad == "fail" or bad.num_rows == len(rows):
            _fail(out, bad, len(rows), settings["source"])
    else:
        (out / "bad.csv").unlink(missing_ok=True)
    good = rows.take((files["status"].to_numpy() == "ok").nonzero()[0])
    write_bytes(out / "files.parquet", to_parquet(files))
    write_bytes(out / "records.parquet", good.to_parquet())
    about = {
        "name": settings["dataset"],
        "format": FORMAT,
        "size": settings["size"],
        "images": len(good),
        "bad": bad.num_rows,
        "fingerprint": fingerprint(good, [shard.pictures for shard in shards]),
        "source_sha256": source_sha256(files),
        "shards": [shard.pictures.name for shard in shards],
        "settings": settings,
        "version": __version__,
    }
    write_json(out / "dataset.json", about)


def _fail(out: Path, bad: pa.Table, images: int, source: str | None) -> None:
    first = bad.slice(0, 1).to_pylist()[0]
    others = (
        f"; {bad.num_rows:,} of {images:,} files are bad"
        if bad.num_rows > 1
        else f"; the other {images - 1:,} are good"
    )
    skip = ", or leave them out with --on-bad skip" if bad.num_rows < images else ""
    raise InputError(
        f"{first['reason'].rstrip('.')}{others}, see {out / 'bad.csv'}",
        file=Path(source or "") / first["source"],
        hint=f"Repair or replace them and repeat the command{skip}.",
    )
