"""Prediction with a trained run on another data set than it was trained for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from retinabench.core.errors import QUIET, InputError
from retinabench.data.dataset import make_records
from retinabench.data.loader import ArraySource, Batches, ImageSource, Source
from retinabench.data.prepared import Prepared, open_data, open_prepared, with_shifted
from retinabench.data.tasks import Task
from retinabench.experiments.config import Run
from retinabench.experiments.execution import Resources, member_runs
from retinabench.experiments.features import trunk_features
from retinabench.experiments.run import FILE, ImageRuns, divided, make_batches, predict
from retinabench.experiments.run_folder import FinishedRun, TrainedInputs, finished_run, load_posterior
from retinabench.methods.training import distributed
from retinabench.predictions.io import read_predictions, write_predictions
from retinabench.predictions.table import Predictions


def predict_on(folder: Path, data: Path, out: Path, resources: Resources, network: str | None = None) -> Path:
    """Predict a prepared folder with a finished run, as if it had been trained with `train --shifted DATA`.

    The run's own validation and test images are in domain, those of `data` are shifted. Where the training data are not at
    their place any more, the predictions that the run's folder holds are those in domain; all others have the same bits.
    Processes that `torchrun` started share the images.
    """
    leads = distributed.join(resources.torch_device()).leads
    if not leads:
        resources = replace(resources, progress=QUIET)
    finished = finished_run(folder, network)
    if (division := finished.run.cross_validation) is not None and division.fold is None:
        hint = "Name the run of a fold, beside it."
        raise InputError("joins folds, whose networks are several", file=folder, hint=hint)
    trained = finished.training_data()
    if trained is not None:
        task, gone = _with_shifted(finished.run, trained, open_data(finished.run.data, data)), None
    else:
        assert finished.inputs is not None
        resources.progress.say(
            f"note: {finished.run.data} does not hold the training data; in domain are the predictions of the run itself"
        )
        task, gone = _without_training_data(finished, finished.inputs, data), finished.inputs
    for note in task.notes:
        resources.progress.say(f"note: {note}")
    predictions = _predict(finished, folder, finished.run, task, gone, resources)
    if leads:
        write_predictions(predictions, out)
    return out


def _with_shifted(run: Run, trained: Task, joined: Prepared) -> Task:
    """The run's own splits in domain keep their row numbers, since its data come first."""
    joined = replace(joined, referable_from=trained.data.referable_from)
    assert joined.shifted is not None
    new = np.arange(len(joined.records)) >= len(joined.records) - len(open_prepared(joined.shifted).records)
    splits = {name: rows for name, rows in trained.splits.items() if not name.startswith("shifted")}
    for split in ("validation", "test"):
        rows = np.flatnonzero(new & (joined.records.split == split))
        splits |= {f"shifted_{split}": rows} if rows.size else {}
    if "shifted_test" not in splits:
        raise InputError("has no split 'test'", file=joined.shifted, hint="Prepare it by `prepare --split test`.")
    unused = int((new & (joined.records.split == "train")).sum())
    note = f"{unused:,} training images of {joined.shifted} are not predicted; `prepare --split test` makes all of them test images"
    return Task(run.task, joined, splits, (note,) if unused else ())


def _without_training_data(finished: FinishedRun, inputs: TrainedInputs, data: Path) -> Task:
    """The task with black validation and test images: they keep the shifted images in their batches, and thus their bits."""
    own = _in_domain(finished.folder)
    n, size = len(own), inputs.size
    assert own.patient_id is not None
    grade = own.grade if own.grade is not None else np.where(own.label > 0, 2, 0)
    source = np.full(n, "")
    records = make_records(own.image_id, grade, patient_id=own.patient_id, split=own.split, source=source)
    black = np.broadcast_to(np.uint8(0), (n, size, size, 3))
    first = Prepared(
        Path(finished.run.data), inputs.data, size, inputs.fingerprint, records, (black,), graded=own.grade is not None,
        referable_from=inputs.referable_from, settings=inputs.settings,
    )  # fmt: skip
    second = open_prepared(data)
    joined = replace(with_shifted(first, second), folder=second.folder)
    splits = {split: np.flatnonzero(own.split == split) for split in ("validation", "test")}
    return _with_shifted(finished.run, Task(finished.run.task, first, splits, ()), joined)


def _in_domain(folder: Path) -> Predictions:
    own = read_predictions(folder / FILE).select(domain="in_domain")
    if own is None:
        raise InputError("holds no predictions in domain", file=folder / FILE)
    return own


def _predict(
    finished: FinishedRun, folder: Path, run: Run, task: Task, gone: TrainedInputs | None, resources: Resources
) -> Predictions:
    """Return the predictions of a run by the weights in its folder; gone: what is known of training data that are not there."""
    if members := member_runs(run):
        each = [_predict(finished, finished.member(one), one, task, gone, resources) for one in members]
        return ImageRuns(task).combine(run, each)
    device = resources.torch_device()
    _, posterior = load_posterior(folder, str(device), finished.network)
    part = divided(task, run)
    if gone is None:
        batches = make_batches(run, part, device, resources.reading(), resources.progress)
    else:
        none = np.empty(0, np.intp)
        source = _scaled_source(run, gone, task, device, resources)
        batches = Batches(source, none, none, run.optimizer.batch_size, run.seed)
    batches.limits.changed = lambda line: resources.progress.say(f"note: {line}")
    found = predict(run, part, posterior, batches, resources.progress)
    if gone is None:
        return found
    own, black = _in_domain(folder), found.domain == "in_domain"
    probs, uncertainty = found.probs.copy(), found.uncertainty
    probs[black] = own.probs
    if uncertainty is not None and own.uncertainty is not None:
        uncertainty = np.where(black, 0.0, uncertainty)
        uncertainty[black] = own.uncertainty
    return replace(found, probs=probs, uncertainty=uncertainty)


def _scaled_source(run: Run, inputs: TrainedInputs, task: Task, device: torch.device, resources: Resources) -> Source:
    """The images by the scale that the run keeps, or their features where the head alone was trained."""
    mean, std = inputs.scale
    if run.model.trained != "head":
        # Processes that read ahead would open the folders again, of which one is gone.
        return ImageSource(task.data, device, scale=(mean.tolist(), std.tolist()))
    assert task.data.shifted is not None
    shifted = trunk_features(run.model, open_prepared(task.data.shifted), device, resources.progress)
    features = np.zeros((len(task.records), shifted.shape[1]), np.float32)
    features[-len(shifted) :] = (shifted - mean) / std
    labels = torch.from_numpy(task.data.label.astype(np.float32)).to(device)
    return ArraySource(torch.from_numpy(features).to(device), labels)
