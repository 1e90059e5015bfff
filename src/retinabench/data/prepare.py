"""Prepare a data set: every picture once, in parallel, into shards that a killed command continues.

Shard k holds pictures k*SHARD … and depends on nothing but the settings in `prepare.json`; a shard that is there is
whole (atomic rename) and is never made again. Two commands in one folder make the same bytes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from retinabench import __version__
from retinabench.data import find_dataset
from retinabench.data.images import Recipe
from retinabench.data.records import Prepared, Records, fingerprint, open_prepared, write_shard
from retinabench.data.survey import Survey
from retinabench.errors import InputError, WorkError
from retinabench.progress import QUIET, Progress
from retinabench.store import write_bytes, write_json

SHARD = 128
FORMAT = 1  # of the folder and of every picture's content: raise it when either changes


def prepare(
    name: str,
    out: Path,
    *,
    size: int,
    source: Path | None = None,
    workers: int | None = None,
    progress: Progress = QUIET,
    **options: Any,
) -> Prepared:
    """Prepare data set `name` at `size` pixels into the folder `out`, or continue there; return it opened.

    Raises `InputError` where the source is bad or `out` holds another data set.
    """
    if not 16 <= size <= 2048:
        raise InputError(f"size {size} is outside 16 … 2048 pixels", cure="Choose another --size.")
    survey = Survey()
    rows = find_dataset(name).records(source, survey=survey, **options)
    settings = {
        "dataset": name,
        "size": size,
        "format": FORMAT,
        "source": str(source.resolve()) if source else None,
        **options,
    }
    survey.check(out, "fail")
    _claim(out, settings)
    if not (out / "dataset.json").is_file():
        survey.write(out / "left_out.csv")
        for note in survey.lines():
            progress.say(f"note: {note}")
        paths = [out / f"images-{k:05d}.npy" for k in range(-(-len(rows) // SHARD))]
        _make_shards(name, rows, paths, source, size, workers, progress)
        write_bytes(out / "records.parquet", rows.to_parquet())
        about = {
            "name": name,
            "size": size,
            "images": len(rows),
            "fingerprint": fingerprint(rows, paths),
            "shards": [path.name for path in paths],
            "settings": settings,
            "version": __version__,
        }
        write_json(out / "dataset.json", about)
    return open_prepared(out)


def _claim(out: Path, settings: dict[str, Any]) -> None:
    """Note the settings in an empty folder; refuse a folder that was begun with others."""
    file = out / "prepare.json"
    if file.is_file():
        begun = json.loads(file.read_text())
        if begun != settings:
            different = [key for key in settings if begun.get(key) != settings[key]]
            raise InputError(
                f"holds a data set prepared with another {', '.join(different) or 'format'}",
                file=out,
                cure="Choose another --out, or delete the folder.",
            )
    elif out.is_dir() and any(out.iterdir()):
        raise InputError(
            "is not empty and holds no prepared data set", file=out, cure="Choose another --out."
        )
    else:
        write_json(file, settings)


def _make_shards(
    name: str,
    rows: Records,
    paths: list[Path],
    source: Path | None,
    size: int,
    workers: int | None,
    progress: Progress,
) -> None:
    """Make the shards that are missing."""
    missing = [k for k, path in enumerate(paths) if not path.is_file()]
    jobs = [(name, list(rows.source[k * SHARD : (k + 1) * SHARD]), source, size, paths[k]) for k in missing]
    workers = min(workers or os.cpu_count() or 1, len(jobs))
    with progress.track(f"Preparing {name} at {size} px", len(rows), unit="images") as advance:
        advance(
            sum(len(rows.source[k * SHARD : (k + 1) * SHARD]) for k in range(len(paths)) if k not in missing)
        )
        for done in _run(jobs, workers):
            advance(done)


Job = tuple[str, list[str], Path | None, int, Path]


def _run(jobs: list[Job], workers: int) -> Iterator[int]:
    if workers <= 1:
        yield from map(make_shard, jobs)
        return
    # A forked child would inherit the locks of the parent's threads.
    spawn = multiprocessing.get_context("spawn")
    # Ctrl-C reaches the whole group of processes; only the parent shall speak of it.
    pool = ProcessPoolExecutor(workers, spawn, signal.signal, (signal.SIGINT, signal.SIG_IGN))
    with _one_thread_each(), pool:
        futures: list[Future[int]] = [pool.submit(make_shard, job) for job in jobs]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool:
            raise WorkError(
                "a worker was killed, perhaps for lack of memory. Repeat the command, with --workers 1."
            ) from None
        finally:
            for future in futures:
                future.cancel()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let children start with one thread for linear algebra: the processes already share the cores."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def make_shard(job: Job) -> int:
    """Read or draw the pictures of one shard and write it; return how many they are."""
    name, sources, root, size, path = job
    read = find_dataset(name).read
    write_shard(path, np.stack([read(source, root, Recipe(size)) for source in sources]))
    return len(sources)
