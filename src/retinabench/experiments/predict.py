"""Prediction with a trained run on another data set than it was trained for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from retinabench.core.checksums import check
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET
from retinabench.data.prepared import open_data, open_prepared
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run
from retinabench.experiments.execution import Resources, member_runs
from retinabench.experiments.run import combine, divided, load_posterior, make_batches, predict, run_folder
from retinabench.methods.training import distributed
from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions


def predict_on(folder: Path, data: Path, out: Path, resources: Resources) -> Path:
    """Predict a prepared folder with a finished run, as if it had been trained with `--shifted DATA`.

    The run's own validation and test images are in domain, those of `data` are shifted. Processes that `torchrun` started
    share the images.

    Args:
        folder: Folder of the run.
        data: Prepared folder.
        out: Predictions file to write.
        resources: Where to compute.

    Returns:
        `out`.

    Raises:
        InputError: The run is not finished, its training data are gone or have changed, or the images do not fit.
    """
    leads = distributed.join(resources.torch_device()).leads
    if not leads:
        resources = replace(resources, progress=QUIET)
    run = _read_run(folder)
    trained = load_task(run.data, run.task, run.shifted)
    if json.loads(check(folder / "run.json").read_text())["fingerprint"] != trained.data.fingerprint:
        raise InputError(
            f"was trained on other data than {run.data} holds now", file=folder, hint="Restore them."
        )
    task = _with_shifted(run, trained, data)
    for note in task.notes:
        resources.progress.say(f"note: {note}")
    predictions = _predict(folder, run, trained, task, resources)
    if leads:
        write_predictions(predictions, out)
    return out


def _read_run(folder: Path) -> Run:
    if not (folder / "done").is_file():
        raise InputError("holds no finished run", file=folder, hint="Finish it with: retinabench train …")
    return Run(**json.loads(check(folder / "run.json").read_text())["run"])


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


def _predict(folder: Path, run: Run, trained: Task, task: Task, resources: Resources) -> Predictions:
    if members := member_runs(run):
        return combine(
            run,
            task,
            [
                _predict(run_folder(member, folder.parent, trained), member, trained, task, resources)
                for member in members
            ],
        )
    device, task = resources.torch_device(), divided(task, run)
    _, posterior = load_posterior(folder, str(device))
    batches = make_batches(run, task, device, resources.readers, resources.progress)
    batches.limits.changed = lambda line: resources.progress.say(f"note: {line}")
    return predict(run, task, posterior, batches, resources.progress)
