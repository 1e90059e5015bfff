"""What the network of a run reads, kept in the run's folder: the run predicts and is exported where its training data are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, PlainSerializer, PlainValidator, ValidationError

from retinabench.core.atomic_files import write_json
from retinabench.core.checksums import check
from retinabench.core.errors import InputError
from retinabench.core.settings import Frozen, first_problem
from retinabench.data.loader import ImageSource
from retinabench.data.prepared.folder import open_prepared
from retinabench.data.prepared.manifest import PreparedSettings
from retinabench.data.tasks import Task
from retinabench.experiments.config import Run
from retinabench.experiments.features import feature_scale, trunk_features
from retinabench.models.settings import SCALES

INPUTS = "inputs.json"


def _read_settings(given: object) -> PreparedSettings:
    return given if isinstance(given, PreparedSettings) else PreparedSettings.from_json(given)


_Settings = Annotated[
    PreparedSettings, PlainValidator(_read_settings), PlainSerializer(PreparedSettings.to_dict)
]


class TrainedInputs(Frozen):
    """The images that a run was trained on, in all that its predictions need of them.

    Args:
        data: Name of the data set.
        fingerprint: Of the data set.
        size: Side of the images in pixels.
        settings: Those that the images were prepared with; empty for a folder made by hand.
        referable_from: The lowest grade with label 1.
        images: Number of training images.
        patients: Number of training patients.
        mean: Of the channels, or of the features of a fixed trunk, over the training images.
        std: Likewise.
    """

    data: str
    fingerprint: str
    size: int = Field(ge=1)
    settings: _Settings
    referable_from: int = Field(ge=1, le=4)
    images: int
    patients: int
    mean: tuple[float, ...]
    std: tuple[Annotated[float, Field(gt=0)], ...]

    @property
    def scale(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Mean and std as they are applied."""
        return np.array(self.mean, np.float32), np.array(self.std, np.float32)


def describe_inputs(run: Run, task: Task) -> TrainedInputs:
    """Return what a run on a task reads.

    Args:
        run: The run.
        task: Its task; its data may be joined with a shifted data set.
    """
    own, train = open_prepared(task.data.folder), task.splits["train"]
    mean, std = _scale(run, task)
    return TrainedInputs(
        data=own.name,
        fingerprint=own.fingerprint,
        size=own.size,
        settings=own.settings,
        referable_from=task.data.referable_from,
        images=len(train),
        patients=len(np.unique(task.patient_id[train])),
        mean=tuple(mean.tolist()),
        std=tuple(std.tolist()),
    )


def write_inputs(inputs: TrainedInputs, folder: Path) -> None:
    """Write the inputs into the folder of a run.

    Args:
        inputs: What the run reads.
        folder: The folder.
    """
    write_json(folder / INPUTS, inputs.model_dump(mode="json"), checked=True)


def read_inputs(folder: Path) -> TrainedInputs | None:
    """Return the inputs of a finished run, None for a run of an earlier version, which did not keep them.

    Raises:
        InputError: The file is damaged.
    """
    path = check(folder / INPUTS)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"is damaged ({error})", file=path) from None
    try:
        return TrainedInputs.model_validate(content)
    except ValidationError as error:
        raise first_problem(error, path, lambda _: list(TrainedInputs.model_fields)) from None


def _scale(run: Run, task: Task) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and std of what the network reads: features, or the channels of the images."""
    train, cpu = task.splits["train"], torch.device("cpu")
    if run.model.trained == "head":
        return feature_scale(trunk_features(run.model, task.data, cpu)[train])
    over = train if run.model.inputs == "standardised" else None
    statistics = ImageSource(task.data, cpu, over, scale=SCALES.get(run.model.inputs)).statistics
    if statistics is None:
        return np.zeros(3, np.float32), np.ones(3, np.float32)
    mean, std = (values.ravel().numpy() for values in statistics)
    return mean, std
