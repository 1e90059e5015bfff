"""A trained run on a data set that it was not trained with: any training set, any test set, trained once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from retinabench.core.errors import InputError
from retinabench.data.prepared import open_data, open_prepared
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run
from retinabench.experiments.execution import Resources, is_composed
from retinabench.experiments.run import load_posterior, make_batches, metadata, predict, run_folder
from retinabench.methods.registry import METHODS
from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions


def predict_elsewhere(folder: Path, data: Path, out: Path, engine: Resources) -> Path:
    """Write to `out` what the run in `folder` predicts with the prepared folder `data` as its shifted domain.

    As if it had been trained with `--shifted DATA`: its validation and test images in domain, the validation and test
    images of `data` as shifted ones. Raises `InputError` where the run is unfinished, its training data are gone or have
    changed, or the pictures do not fit.
    """
    run = _read_run(folder)
    trained = load_task(run.data, run.task, run.shifted)
    if json.loads((folder / "run.json").read_text())["fingerprint"] != trained.data.fingerprint:
        raise InputError(
            f"was trained on other data than {run.data} holds now", file=folder, hint="Restore them."
        )
    task = _with_shifted(run, trained, data)
    for note in task.notes:
        engine.progress.say(f"note: {note}")
    write_predictions(_predict(folder, run, trained, task, engine), out)
    return out


def _read_run(folder: Path) -> Run:
    if not (folder / "done").is_file():
        raise InputError("holds no finished run", file=folder, hint="Finish it with: retinabench train …")
    return Run(**json.loads((folder / "run.json").read_text())["run"])


def _with_shifted(run: Run, trained: Task, data: Path) -> Task:
    """The run's own splits in domain keep their row numbers, since its data come first."""
    joined = replace(open_data(run.data, data), referable_from=trained.data.referable_from)
    new = np.arange(len(joined.records)) >= len(open_prepared(run.data).records)
    splits = {name: rows for name, rows in trained.splits.items() if not name.startswith("shifted")}
    for split in ("validation", "test"):
        rows = np.flatnonzero(new & (joined.records.split == split))
        splits |= {f"shifted_{split}": rows} if rows.size else {}
    if "shifted_test" not in splits:
        raise InputError("has no split 'test'", file=data, hint="Prepare it with --split test.")
    unused = int((new & (joined.records.split == "train")).sum())
    note = (
        f"{unused:,} training images of {data} are not predicted; prepare it with --split test to test on all"
    )
    return Task(run.task, joined, splits, (note,) if unused else ())


def _predict(folder: Path, run: Run, trained: Task, task: Task, engine: Resources) -> Predictions:
    method = METHODS[run.method.name]
    if is_composed(method):
        combined: Predictions = method.combine(
            [
                _predict(run_folder(member, folder.parent, trained), member, trained, task, engine)
                for member in method.member_runs(run)
            ]
        )
        return replace(combined, metadata=metadata(run, task, members=combined.metadata["members"]))
    device = engine.torch_device()
    _, posterior = load_posterior(folder, str(device))
    return predict(run, task, posterior, make_batches(run, task, device, engine.workers), engine.progress)
