"""The comparison: every UCI set by every method; one file per pair, so that a stopped comparison continues.

The folder holds `comparison.json` (the manifest), `results/SET-METHOD.json`, and the tables and the figure of all
results that are there.

The data are the usual 20 random 90/10 splits (protein 5). The network has one hidden layer of 50 ReLU (protein 100), with standardised
inputs and target; it is trained by Adam with a rate of 0.01 that falls linearly, in batches of 32 (128 above 2,000 rows). MC dropout has
rate 0.05, mean-field VI the prior N(0, 1) and flipout, both 200 samples; the ensemble has 5 members without adversarial examples. Nothing
is tuned per set.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

from retinabench.core.atomic_files import settle, write_json
from retinabench.core.checksums import check
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.subprocesses import in_processes
from retinabench.core.version import __version__
from retinabench.core.workspace import Workspace
from retinabench.data.datasets.uci import SETS, Regression, available, known_set, read
from retinabench.experiments.uci.report import write_report
from retinabench.experiments.uci.scores import Results, SetResult, SplitScores
from retinabench.experiments.uci.training import (
    BATCHES,
    OPTIMIZER,
    SETTINGS,
    TITLES,
    SplitTraining,
    train_and_score,
)

SCHEMA = "retinabench.uci/2"


def compare_methods(
    source: Path,
    sets: Sequence[str],
    out: Path,
    *,
    epochs: int,
    seed: int,
    workers: int = 1,
    progress: Progress = QUIET,
) -> list[Path]:
    """Compute what is missing of the comparison and write its tables and figure.

    Args:
        source: Folder with the UCI sets.
        sets: Names of sets; none for all that `source` holds.
        out: Folder to write into.
        epochs: Passes of every training over its rows.
        seed: Seed of everything random.
        workers: Processes that train.
        progress: Shows how far the work is.

    Returns:
        The tables and figures.

    Raises:
        InputError: A set is unknown, missing or damaged, or `out` holds a comparison by other settings or of other data.
        DivergedError: A training diverged; what was finished before is kept.
    """
    for name in sets:
        known_set(name)
    names = [name for name in SETS if name in sets] or available(source)
    if not names:
        hint = "Expected folders such as energy/data.txt or UCI_Datasets/energy/data/data.txt."
        raise InputError("holds none of the UCI sets", file=source, hint=hint)
    loaded = [read(source, name) for name in names]  # all are checked before the long work begins
    folder = Workspace(out, "UCI comparison", "comparison.json")
    manifest = {
        "schema": SCHEMA,
        "epochs": epochs,
        "seed": seed,
        "methods": SETTINGS,
        "optimizer": {**OPTIMIZER, "batch_size": [size for _, size in BATCHES]},
    }
    with folder.lock():
        folder.begin(manifest)
        missing = [
            (data, method) for data in loaded for method in SETTINGS if not _is_done(data, method, out)
        ]
        _compute(missing, out, epochs, seed, workers, progress)
        settle(out / "results")
        return write_report(results(out), epochs, out)


def results(out: Path) -> Results:
    """Return the results in a folder by set and method, in the order of the paper's table."""
    found: Results = {}
    for name in SETS:
        for method in SETTINGS:
            if (file := _file(out, name, method)).is_file():
                found.setdefault(name, {})[method] = _read(file)
    return found


def _compute(
    missing: Sequence[tuple[Regression, str]],
    out: Path,
    epochs: int,
    seed: int,
    workers: int,
    progress: Progress,
) -> None:
    """Train all splits of the missing pairs; write each pair's file when its last split is done."""
    jobs = [
        SplitTraining(data, method, split, epochs, seed)
        for data, method in missing
        for split in range(len(data.train))
    ]
    scores: dict[tuple[str, str], dict[int, SplitScores]] = {}
    began = time.perf_counter()
    with progress.track("Training", len(jobs), unit="splits") as advance:
        for number, found in in_processes(train_and_score, jobs, workers):
            job = jobs[number]
            of_pair = scores.setdefault((job.data.name, job.method), {})
            of_pair[job.split] = found
            advance(1)
            if len(of_pair) == len(job.data.train):
                result = SetResult(
                    set=job.data.name,
                    method=job.method,
                    title=TITLES[job.method],
                    data=job.data.fingerprint,
                    points=len(job.data),
                    splits=tuple(of_pair[split] for split in sorted(of_pair)),
                )
                about = {"seconds": round(time.perf_counter() - began, 1), "version": __version__}
                write_json(_file(out, job.data.name, job.method), {**result.to_dict(), **about}, checked=True)


def _is_done(data: Regression, method: str, out: Path) -> bool:
    file = _file(out, data.name, method)
    if not file.is_file():
        return False
    if _read(file).data != data.fingerprint:
        hint = "Choose another --out."
        raise InputError("was computed from other data or other splits", file=file, hint=hint)
    return True


def _file(out: Path, name: str, method: str) -> Path:
    return out / "results" / f"{name}-{method}.json"


def _read(file: Path) -> SetResult:
    try:
        return SetResult.from_dict(json.loads(check(file).read_text()))
    except (ValueError, KeyError, TypeError):
        hint = "Delete it; it is then computed again."
        raise InputError("is no result of a UCI comparison", file=file, hint=hint) from None
