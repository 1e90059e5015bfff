"""The predictions of a run on the images of its task, or of the runs that it combines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from retinabench.core.errors import DivergedError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.random_streams import torch_generator
from retinabench.core.results import JsonObject
from retinabench.core.version import __version__
from retinabench.data.loader import Batches
from retinabench.data.tasks import Task
from retinabench.experiments.config import Run
from retinabench.experiments.run_folder import describe
from retinabench.methods.registry import METHODS
from retinabench.methods.training.posterior import Posterior, UncertaintyPosterior, fingerprint, precision
from retinabench.methods.training.prediction import predict_rows
from retinabench.predictions.table import Predictions, concatenate

PREDICT_BATCH = 128
PREDICTED = ("validation", "shifted_validation", "test", "shifted_test")


def combine(run: Run, task: Task, members: Sequence[Predictions]) -> Predictions:
    """Return the predictions of a run that combines others (`execution.member_runs`).

    Those of folds are joined: the test images of all, each predicted by the run that was not trained on its patient.

    Args:
        run: The run.
        task: Its task.
        members: The predictions of its members, in their order.

    Raises:
        InputError: The members do not go together.
    """
    by = run.cross_validation
    if by is not None and by.fold is None:
        tests = concatenate([test for one in members if (test := one.select(split="test")) is not None])
        row = {name: number for number, name in enumerate(task.image_id.tolist())}
        combined = tests.take(np.argsort([row[name] for name in tests.image_id.tolist()]))
    else:
        combined = METHODS[run.method.name].combine(members)
    about = metadata(run, task, members=combined.metadata["members"])
    weights = [one.metadata.get("weights") for one in members]
    return replace(
        combined, metadata=about | ({"weights": "+".join(map(str, weights))} if all(weights) else {})
    )


def predict(
    run: Run, task: Task, posterior: Posterior, batches: Batches, progress: Progress = QUIET
) -> Predictions:
    """Predict every split but the training one, with the run's number of samples.

    Args:
        run: The run.
        task: Its task.
        posterior: The trained posterior.
        batches: The batches of the run, which load the images.
        progress: Shows how far the work is.

    Returns:
        The predictions of validation and test images, with their metadata.

    Raises:
        DivergedError: A prediction is not finite.
        OutOfMemoryError: Not even one image fits the memory.
    """
    part = task[tuple(split for split in PREDICTED if split in task.splits)]
    generator, samples = torch_generator(batches.device, run.seed, "predict"), run.method.samples
    own = isinstance(posterior, UncertaintyPosterior)

    def compute(images: torch.Tensor) -> torch.Tensor:
        with precision(run, batches.device):
            columns = [posterior.predict(images, samples, generator)[..., 1].T.double()]
            if isinstance(posterior, UncertaintyPosterior):
                columns.append(posterior.uncertainty(images).double()[:, None])
        return torch.cat(columns, dim=1)

    with progress.track(
        f"Predicting {run.method.describe()}, seed {run.seed}", len(part), unit="images"
    ) as advance:
        table = predict_rows(
            batches, part.rows, compute, generator, samples,
            batch_size=PREDICT_BATCH, work="prediction", advance=advance,
        ).numpy()  # fmt: skip
    if not np.isfinite(table).all():
        raise DivergedError(
            f"{run.method.describe()} predicts values that are not finite. Lower optimizer.lr, or change method.*."
        )
    return Predictions(
        image_id=part.image_id,
        label=part.label,
        probs=table[:, :-1] if own else table,
        grade=part.grade,
        patient_id=part.patient_id,
        domain=part.domain,
        split=part.split,
        uncertainty=table[:, -1] if own else None,
        metadata=metadata(run, task, members=1) | {"weights": fingerprint(posterior.state())},
    )


def metadata(run: Run, task: Task, members: int) -> JsonObject:
    """Return the metadata of a predictions file; `blur` where the images had Graham's preprocessing.

    Args:
        run: The run.
        task: Its task.
        members: Number of runs that are combined, 1 of a single one.
    """
    prepared = task.data.settings
    return {
        "method": run.method.name,
        "title": run.method.describe(),
        "setting": run.setting(task.data.fingerprint),
        "run": describe(run),
        "task": run.task,
        "model": run.model.name,
        "data": task.data.name,
        **({"blur": prepared.blur} if prepared.preprocess == "graham" else {}),
        "seed": run.seed,
        "members": members,
        "config_hash": run.hash(task.data.fingerprint),
        "version": __version__,
    }
