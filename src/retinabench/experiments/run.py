"""Runs on images: the prepared data of a task, the predictions of its images, and the run's manifest."""

from __future__ import annotations

import glob
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from retinabench.core.errors import QUIET, DivergedError, InputError, Progress, check
from retinabench.core.files import write_json
from retinabench.core.random_streams import torch_generator
from retinabench.core.results import JsonObject
from retinabench.core.version import __version__
from retinabench.data.loader import ArraySource, Batches, ImageSource, Source
from retinabench.data.tables import encode
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run
from retinabench.experiments.execution import (
    DEFAULT_RESOURCES,
    POSTERIOR,
    Resources,
    Training,
    check_inputs,
    execute_run,
    member_runs,
)
from retinabench.experiments.features import feature_source
from retinabench.experiments.run_folder import INPUTS, LIKELIHOOD, describe, describe_inputs, folder_name, read_run
from retinabench.methods.registry import METHODS
from retinabench.methods.training import distributed
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.posterior import Posterior, UncertaintyPosterior, fingerprint, precision
from retinabench.methods.training.prediction import predict_rows
from retinabench.metrics.image_sets import referral_uncertainty
from retinabench.models.build import build_model, check_size, check_takes_tables
from retinabench.models.foreign import source_of
from retinabench.models.settings import SCALES
from retinabench.predictions.io import read_predictions, write_predictions
from retinabench.predictions.table import Predictions, concatenate

PREDICT_BATCH = 128
SAVED_EVERY = 1.0  # seconds between checkpoints: epochs of a linear head are shorter than a write
COMPARED = ("epistemic", "max_probability")
PREDICTED = ("validation", "shifted_validation", "test", "shifted_test")


def predict(run: Run, task: Task, posterior: Posterior, batches: Batches, progress: Progress = QUIET) -> Predictions:
    """Predict every split but the training one, with the run's number of samples."""
    part = task[tuple(split for split in PREDICTED if split in task.splits)]
    generator, samples = torch_generator(batches.device, run.seed, "predict"), run.method.samples
    own = isinstance(posterior, UncertaintyPosterior)

    def compute(images: torch.Tensor) -> torch.Tensor:
        with precision(run, batches.device):
            columns = [posterior.predict(images, samples, generator)[..., 1].T.double()]
            if isinstance(posterior, UncertaintyPosterior):
                columns.append(posterior.uncertainty(images).double()[:, None])
        return torch.cat(columns, dim=1)

    with progress.track(f"Predicting {run.method.describe()}, seed {run.seed}", len(part), unit="images") as advance:
        table = predict_rows(
            batches, part.rows, compute, generator, samples,
            batch_size=PREDICT_BATCH, work="prediction", advance=advance,
        ).numpy()  # fmt: skip
    if not np.isfinite(table).all():
        hint = "Lower optimizer.lr, or change method.*."
        raise DivergedError(f"{run.method.describe()} predicts values that are not finite. {hint}")
    probs = table[:, :-1] if own else table
    about = metadata(run, task, members=1)
    about |= {"weights": fingerprint(posterior.state()), "samples": probs.shape[1]}  # also where their rows sum to 1
    predictions = Predictions(
        part.image_id, part.label, probs, grade=part.grade, patient_id=part.patient_id, domain=part.domain,
        split=part.split, uncertainty=table[:, -1] if own else None, metadata=about,
        fold=None if run.cross_validation is None else np.full(len(part), run.cross_validation.fold),
    )  # fmt: skip
    named = compared_in_folds(run, predictions)
    return replace(predictions, uncertainties=named) if named else predictions


def compared_in_folds(run: Run, predictions: Predictions) -> dict[str, NDArray[np.float64]]:
    """Return the uncertainties `COMPARED` where a run cross-validates and draws samples: its file then compares them."""
    if run.cross_validation is None or predictions.samples == 1:
        return {}
    return {name: referral_uncertainty(replace(predictions, uncertainties={}), name)[0] for name in COMPARED}


def metadata(run: Run, task: Task, members: int) -> JsonObject:
    """Return the metadata of a predictions file; `blur` where the images had Graham's preprocessing."""
    prepared = task.data.settings
    return {
        "method": run.method.name, "title": run.method.describe(), "setting": run.setting(task.data.fingerprint),
        "run": describe(run), "task": run.task, "model": run.model.name, "data": task.data.name,
        **({"blur": prepared.blur} if prepared.preprocess == "graham" else {}),
        **({} if task.data.table is None else {"inputs": "table"}),
        "seed": run.seed, "members": members, "config_hash": run.hash(task.data.fingerprint), "version": __version__,
    }  # fmt: skip


FILE = "predictions.parquet"


@dataclass(frozen=True)
class ImageRuns:
    """Runs on the images of a task (see `RunTask`); their result is a predictions file."""

    task: Task
    likelihood: Likelihood = LIKELIHOOD
    decisive: tuple[str, ...] = ("identity", "network_sha256")
    keeps_posterior: bool = True

    def folder_name(self, run: Run) -> str:
        return folder_name(run, self.task.data.fingerprint)

    def manifest(self, run: Run) -> JsonObject:
        fingerprint = self.task.data.fingerprint
        source = source_of(run.model.name)._asdict() if run.model.own else {}
        return {
            "run": run.model_dump(mode="json"), "fingerprint": fingerprint, "identity": run.identity(fingerprint),
            "version": __version__, "torch": torch.__version__, "threads": torch.get_num_threads(),
            "processes": distributed.current().count, **{f"network_{key}": value for key, value in source.items()},
        }  # fmt: skip

    def training(self, run: Run, resources: Resources) -> Training[Predictions]:
        task = divided(self.task, run)
        for note in task.notes:
            resources.progress.say(f"note: {note}")
        batches, model = self.inputs(run, task, resources)
        return Training(
            model, batches, lambda posterior: predict(run, task, posterior, batches, resources.progress),
            f"Training {run.method.describe()}, seed {run.seed}", interval=SAVED_EVERY,
        )  # fmt: skip

    def inputs(self, run: Run, task: Task, resources: Resources) -> tuple[Batches, nn.Module]:
        """Return what a run reads of a task, and its untrained network."""
        if run.method.keeps_trunk and run.model.weights is None:
            note = f"'{run.method.name}' keeps the weights of the trunk, which are random without model.weights"
            resources.progress.say(f"note: {note}")
        device, columns = resources.torch_device(), None
        batches = make_batches(run, task, device, resources.reading(), resources.progress)
        if task.data.table is not None and isinstance(batches.source, ArraySource):
            columns = int(batches.source.inputs.shape[1])
        return batches, build_model(run.model, run.seed, progress=resources.progress, columns=columns).to(device)

    def combine(self, run: Run, members: Sequence[Predictions]) -> Predictions:
        """Return the predictions of a run that combines others (`execution.member_runs`): of folds the test images of all, each predicted by the run without its patient."""
        by = run.cross_validation
        if by is not None and by.fold is None:
            tests = concatenate([
                replace(test, fold=np.full(len(test), number))  # of folds that version 0.2 wrote as well
                for number, one in enumerate(members)
                if (test := one.select(split="test")) is not None
            ])  # fmt: skip
            row = {name: number for number, name in enumerate(self.task.image_id.tolist())}
            combined = tests.take(np.argsort([row[name] for name in tests.image_id.tolist()]))
        else:
            combined = METHODS[run.method.name].combine(members)
        about = metadata(run, self.task, members=combined.metadata["members"])
        weights = [one.metadata.get("weights") for one in members]
        combined = replace(combined, uncertainties=compared_in_folds(run, combined))  # not those of the first member
        return replace(combined, metadata=about | ({"weights": "+".join(map(str, weights))} if all(weights) else {}))

    def read(self, folder: Path) -> Predictions:
        return read_predictions(folder / FILE)

    def write(self, result: Predictions, run: Run, folder: Path) -> None:
        inputs = describe_inputs(run, divided(self.task, run))
        write_json(folder / INPUTS, inputs.model_dump(mode="json"), checked=True)
        write_predictions(result, folder / FILE, checked=True)


def execute(run: Run, out: Path, resources: Resources = DEFAULT_RESOURCES) -> Path:
    task = load_task(run.data, run.task, run.shifted)
    if task.data.table is None:
        check_size(run.model, task.data.size)
    else:
        check_takes_tables(run.model)
    return execute_run(ImageRuns(task), run, out, resources, _trained_before(run, task, out))


def _trained_before(run: Run, task: Task, out: Path) -> Path | None:
    """Return a finished run below `out` that differs in its shifted images alone: training does not use these."""
    if run.shifted is None or member_runs(run):
        return None
    name = ImageRuns(task).folder_name(run)
    for done in sorted(out.glob(f"{glob.escape(name.rpartition('-')[0])}-*/done")):
        folder = done.parent
        try:
            other = read_run(folder, run.model.name if run.model.own else None)
            if other == run or other.model_copy(update={"shifted": run.shifted}) != run:
                continue
            theirs = ImageRuns(load_task(other.data, other.task, other.shifted))
        except InputError:  # it is damaged, or its shifted images are gone
            continue
        begun, now = json.loads(check(folder / "run.json").read_text(encoding="utf-8")), theirs.manifest(other)
        current = all(begun.get(key) == now.get(key) for key in theirs.decisive)
        splits = theirs.task.splits
        same = all(np.array_equal(splits[part], task.splits[part]) for part in ("train", "validation"))
        if current and same and (folder / POSTERIOR).is_file():
            return folder
    return None


def divided(task: Task, run: Run) -> Task:
    """Return the task as a run divides it: by its own split, or by one fold of a cross-validation."""
    if (by := run.cross_validation) is None or by.fold is None:
        return task
    return task.in_fold(by.folds, by.repeat, by.fold)


def run_folder(run: Run, out: Path, task: Task) -> Path:
    return out / ImageRuns(task).folder_name(run)


def make_batches(run: Run, task: Task, device: torch.device, workers: int = 0, progress: Progress = QUIET) -> Batches:
    return batches_of(run, task, _source(run, task, device, workers, progress))


def batches_of(run: Run, task: Task, source: Source) -> Batches:
    train, validation, settings = task.splits["train"], task.splits["validation"], run.optimizer
    return Batches(source, train, validation, settings.batch_size, run.seed, settings.augment)


def _source(run: Run, task: Task, device: torch.device, workers: int, progress: Progress) -> Source:
    """The images of a run, or their features where the head alone is trained, or the rows of a table."""
    if run.model.trained == "head" or task.data.table is not None:
        check_inputs(run)
        if run.optimizer.augment != "none":
            problem = (
                f"optimizer.augment={run.optimizer.augment} changes images, and these are features or rows of a table"
            )
            raise InputError(problem, hint="Set optimizer.augment=none, or train more than the head.")
        if task.data.table is not None:
            inputs = torch.from_numpy(encode(task.data.table, task.splits["train"]))
            return ArraySource(inputs.to(device), torch.from_numpy(task.data.label.astype(np.float32)).to(device))
        return feature_source(run.model, task.data, task.splits["train"], device, progress)[0]
    train = task.splits["train"] if run.model.inputs == "standardised" else None
    return ImageSource(task.data, device, train, workers, SCALES.get(run.model.inputs))
