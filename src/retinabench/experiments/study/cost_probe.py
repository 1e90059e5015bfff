"""A short timed probe of a method, and what it says of a whole run's time and disk.

A few batches are trained and predicted as a run would do it, on the device where it would. With b seconds per training
image, c per predicted image (and posterior samples as the run has them), N training, V validation and P predicted
images and E epochs, a run takes about start + E (N b + s V c) + P c seconds, where s is the share of a full validation that
its plan asks for (`methods/training/prediction.py`). b is the difference of two trainings that
differ in their images only, so that what happens once cancels. What a method does once after its training (Laplace's
curvature) is counted as if done in every epoch: an upper bound.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from retinabench.data.tasks import Task
from retinabench.experiments.config import Run
from retinabench.experiments.execution import member_runs
from retinabench.experiments.image_predictions import PREDICTED, predict
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import make_batches
from retinabench.experiments.run_folder import LIKELIHOOD
from retinabench.methods.registry import METHODS
from retinabench.methods.training.checkpoint import Checkpoint, save_tensors
from retinabench.methods.training.prediction import validation_plan
from retinabench.models.build import build_model, parameters_of

Result = TypeVar("Result")
EPOCHS = 2  # the fewest that every method can train
SECONDS = 1.5  # of the longer training
CPU_BATCH = 32  # images of a probe's batch on a CPU, where a batch of the run may take minutes
MOST_BATCHES = 40
HELD_OUT = 64
ROW_BYTES = 24  # of a prediction file's image, beside its samples
ALLOWANCE = 50_000  # bytes of a run's small files


@dataclass(frozen=True)
class Cost:
    """Seconds per training image and epoch, per predicted image, and once per run; bytes that a run keeps."""

    train: float
    predict: float
    start: float
    disk: int

    def seconds(self, run: Run, sizes: dict[str, int]) -> float:
        """Seconds of a whole run on splits of these sizes."""
        plan = validation_plan(run, sizes["train"], sizes["validation"])
        share = plan.samples / run.method.samples / plan.every
        epoch = sizes["train"] * self.train + share * sizes["validation"] * self.predict
        return self.start + run.optimizer.epochs * epoch + _predicted(sizes) * self.predict

    def bytes(self, run: Run, sizes: dict[str, int]) -> int:
        """Bytes of a run's folder when done."""
        return self.disk + prediction_bytes(sizes, run.method.samples) + ALLOWANCE


def stated_cost(run: Run, images_per_second: float) -> Cost:
    """Return the cost of a run by a stated speed, in passes: a gradient of one image counts 3, a prediction 1 per sample.

    A method costs as many gradients per image as it says (`MethodConfig.gradients_per_example`); what its layers cost beside is
    not counted.

    Args:
        run: The run.
        images_per_second: Training images per second of MAP.
    """
    run = _trained(run)
    gradients = run.method.gradients_per_example(run.optimizer) / run.optimizer.epochs
    disk = 4 * parameters_of(run.model)
    return Cost(gradients / images_per_second, run.method.samples / (3 * images_per_second), 0.0, disk)


def prediction_bytes(sizes: dict[str, int], samples: int) -> int:
    """Bytes of a predictions file: samples are stored as float64, which hardly compress."""
    return _predicted(sizes) * (8 * samples + ROW_BYTES)


def probe(run: Run, task: Task, resources: Resources, threads: int) -> Cost:
    """Time a short training and prediction of a run.

    Args:
        run: The run.
        task: Its task.
        resources: Where to compute.
        threads: Threads that one of several runs at a time has.

    Returns:
        The cost of the run's parts.
    """
    run = _trained(run)
    device = resources.torch_device()
    batch = run.optimizer.batch_size if device.type == "cuda" else min(run.optimizer.batch_size, CPU_BATCH)
    chosen = {"batch_size": batch, "epochs": EPOCHS, "warmup": 0.0, "select": "last", "validation_share": 1.0}
    short = run.model_copy(update={"optimizer": run.optimizer.model_copy(update=chosen)})

    def timed(images: int, folder: Path) -> tuple[float, float, int]:
        """Seconds of a training of this many images, of predicting one, and bytes on the disk."""
        small = _small(task, images)
        held = replace(small, splits={"test": small.splits["validation"]})
        batches = make_batches(short, small, device)
        model = build_model(short.model, short.seed).to(device)
        training, posterior = _clock(
            device,
            lambda: METHODS[short.method.name].fit(model, batches, short, Checkpoint(folder), LIKELIHOOD),
        )
        save_tensors(folder / "posterior.pt", posterior.state())
        (folder / "best.pt").unlink(missing_ok=True)
        disk = sum(file.stat().st_size for file in folder.iterdir())
        predicting, _ = _clock(device, lambda: predict(short, held, posterior, batches))
        return training, predicting / len(held.splits["test"]), disk

    with _threads(threads), tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        places = [root / name for name in ("warm", "small", "large")]
        for place in places:
            place.mkdir()
        timed(batch, places[0])  # the first steps allocate, compile and tune
        small, _, _ = timed(batch, places[1])
        count = int(np.clip(SECONDS / max(small / EPOCHS, 1e-3), 3, MOST_BATCHES))
        large, per_image, disk = timed(count * batch, places[2])
    train = max(large - small, 0.0) / (EPOCHS * (count - 1) * batch)
    held = len(_small(task, batch).splits["validation"])
    start = max(0.0, small - EPOCHS * (batch * train + held * per_image))
    return Cost(train, per_image, start, disk)


def _trained(run: Run) -> Run:
    """The run, or the first of those that it combines which is trained."""
    while members := member_runs(run):
        run = members[0]
    return run


def _small(task: Task, images: int) -> Task:
    """The task with a given number of training images, repeated where it has fewer, and a few held-out ones of both classes."""
    held = task.splits["validation"]
    label = task.data.label[held]
    held = np.concatenate([held[label == kind][: HELD_OUT // 2] for kind in (0, 1)])
    train = np.resize(task.splits["train"], images)
    return replace(task, splits={"train": train, "validation": held}, notes=())


def _predicted(sizes: dict[str, int]) -> int:
    return sum(sizes.get(split, 0) for split in PREDICTED)


def _clock(device: torch.device, work: Callable[[], Result]) -> tuple[float, Result]:
    began = time.perf_counter()
    result = work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began, result


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
