"""The folder of a run: its name, settings, posterior, and what its network reads.

A finished run predicts and is exported where its training data are not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from retinabench.core.errors import InputError, check
from retinabench.core.settings import Frozen, read_checked
from retinabench.data.loader import ImageSource
from retinabench.data.prepared import PreparedSettings, open_prepared
from retinabench.data.tables import encode
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run, build_run
from retinabench.experiments.execution import POSTERIOR
from retinabench.experiments.features import feature_scale, trunk_features
from retinabench.methods.registry import METHODS
from retinabench.methods.training.checkpoint import load_tensors, taking_over
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.posterior import Posterior
from retinabench.models.build import build_model, set_arithmetic
from retinabench.models.foreign import named_network
from retinabench.models.settings import SCALES

INPUTS = "inputs.json"


class TrainedInputs(Frozen):
    """The images that a run was trained on, in all that its predictions need of them."""

    data: str
    fingerprint: str
    size: int = Field(ge=1)
    settings: PreparedSettings
    referable_from: int = Field(ge=1, le=4)
    images: int
    patients: int
    mean: tuple[float, ...]
    std: tuple[Annotated[float, Field(gt=0)], ...]

    @property
    def of_table(self) -> bool:
        return self.settings.dataset == "table"

    @property
    def scale(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return np.array(self.mean, np.float32), np.array(self.std, np.float32)


def describe_inputs(run: Run, task: Task) -> TrainedInputs:
    own, train = open_prepared(task.data.folder), task.splits["train"]
    mean, std = _input_scale(run, task)
    return TrainedInputs(
        data=own.name, fingerprint=own.fingerprint, size=own.size, settings=own.settings,
        referable_from=task.data.referable_from, images=len(train), patients=len(np.unique(task.patient_id[train])),
        mean=tuple(mean.tolist()), std=tuple(std.tolist()),
    )  # fmt: skip


def read_inputs(folder: Path) -> TrainedInputs | None:
    """Return the inputs of a finished run, None for a run of an earlier version, which did not keep them."""
    return read_checked(folder / INPUTS, TrainedInputs.model_validate)


def _input_scale(run: Run, task: Task) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and std of what the network reads: features, or the channels of the images."""
    train, cpu = task.splits["train"], torch.device("cpu")
    if task.data.table is not None:  # encoded by the training rows, which have to be there
        columns = encode(task.data.table, train).shape[1]
        return np.zeros(columns, np.float32), np.ones(columns, np.float32)
    if run.model.trained == "head":
        return feature_scale(trunk_features(run.model, task.data, cpu)[train])
    over = train if run.model.inputs == "standardised" else None
    statistics = ImageSource(task.data, cpu, over, scale=SCALES.get(run.model.inputs)).statistics
    mean, std = statistics or (torch.zeros(3), torch.ones(3))
    return mean.ravel().numpy(), std.ravel().numpy()


LIKELIHOOD = Bernoulli()  # referable or not


def folder_name(run: Run, fingerprint: str) -> str:
    """Return the name of a run's folder: readable first, unique by its hash."""
    return f"{describe(run).replace(' ', '-')}-{run.hash(fingerprint)}"


def describe(run: Run) -> str:
    """Return the run in a few words: `dropout resnet18 seed 2`, `map resnet18 seed 0 fold 3 of 5 folds repeat 1`."""
    division = "" if run.cross_validation is None else f" {run.cross_validation}"
    return f"{run.method.describe(titles=False)} {run.model.name} seed {run.seed}{division}"


def read_run(folder: Path, network: str | None = None) -> Run:
    path = folder / "run.json"
    run = read_checked(path, lambda content: build_run(content["run"], path))
    if run is None:
        raise InputError("holds no run (run.json is missing)", file=folder)
    name = named_network(run.model.name, network, folder, own=run.model.own)
    return run.model_copy(update={"model": run.model.model_copy(update={"name": name})})


def load_posterior(folder: Path, device: str = "cpu", network: str | None = None) -> tuple[Run, Posterior]:
    run = read_run(folder, network)
    try:
        state = load_tensors(folder / POSTERIOR, mapped=True)
    except FileNotFoundError:
        raise InputError(f"holds no finished training ({POSTERIOR} is missing)", file=folder) from None
    inputs = read_inputs(folder)
    columns = len(inputs.mean) if inputs is not None and inputs.of_table else None
    model = build_model(run.model, run.seed, pretrained=False, columns=columns).to(device)
    posterior: Posterior = METHODS[run.method.name].build(model, run, LIKELIHOOD)
    with taking_over(folder / POSTERIOR):
        posterior.restore(state)
    set_arithmetic(run.optimizer.precision, torch.device(device))
    return run, posterior


@dataclass(frozen=True)
class FinishedRun:
    """A finished run and what its folder says of its data."""

    folder: Path
    run: Run
    fingerprint: str
    inputs: TrainedInputs | None
    network: str | None

    def training_data(self) -> Task | None:
        """Return the data that it was trained on; None where they are gone, and its folder holds all that is needed."""
        needed = self.inputs is None or self.inputs.of_table or self.run.cross_validation is not None
        try:
            task = load_task(self.run.data, self.run.task, self.run.shifted)
        except InputError as error:
            if needed:
                here = f"Run the command where the run was trained: it names its data {self.run.data}. {error.hint}"
                raise InputError(error.problem, file=error.file, hint=here) from None
            return None
        if task.data.fingerprint == self.fingerprint:
            return task
        if needed:
            problem = f"was trained on other data than {self.run.data} holds now"
            raise InputError(problem, file=self.folder, hint="Restore them.")
        return None

    def described(self) -> TrainedInputs:
        """Return what it reads, from its folder or from the training data."""
        if self.inputs is not None:
            return self.inputs
        task = self.training_data()
        assert task is not None
        return describe_inputs(self.run, task)

    def member(self, run: Run) -> Path:
        """Return the folder of a run that this one combines; it lies beside."""
        return self.folder.parent / folder_name(run, self.fingerprint)


def finished_run(folder: Path, network: str | None = None) -> FinishedRun:
    if not (folder / "done").is_file():
        raise InputError("holds no finished run", file=folder, hint="Finish it with: retinabench train …")
    run = read_run(folder, network)
    fingerprint = str(json.loads(check(folder / "run.json").read_text())["fingerprint"])
    return FinishedRun(folder, run, fingerprint, read_inputs(folder), network)
