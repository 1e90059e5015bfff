"""The plan of a study: what it will compute, and its rough cost in hours and disk space."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.data.datasets import synthetic
from retinabench.data.prepared import prepared
from retinabench.data.registry import TASKS
from retinabench.data.tasks import Task, expected_sizes
from retinabench.experiments.config import Run
from retinabench.experiments.execution import Resources, member_runs
from retinabench.experiments.run import PREDICTED, make_batches, predict
from retinabench.experiments.run_folder import LIKELIHOOD
from retinabench.experiments.study.definition import Drawn, Study
from retinabench.experiments.study.prediction_files import ensembles
from retinabench.experiments.study.study import (
    StudyCell,
    cells,
    draw,
    folder_of,
    is_drawn,
    most_runs,
    open_task,
    trials,
)
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
    """
    run = _trained(run)
    gradients = run.method.gradients_per_example(run.optimizer) / run.optimizer.epochs
    disk = 4 * parameters_of(run.model)
    return Cost(gradients / images_per_second, run.method.samples / (3 * images_per_second), 0.0, disk)


def prediction_bytes(sizes: dict[str, int], samples: int) -> int:
    """Bytes of a predictions file: samples are stored as float64, which hardly compress."""
    return _predicted(sizes) * (8 * samples + ROW_BYTES)


def probe(run: Run, task: Task, resources: Resources, threads: int) -> Cost:
    """Time a short training and prediction of a run."""
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


PROBE_IMAGES = 128  # training images of the data set drawn for a probe where none is prepared yet


@dataclass(frozen=True)
class PlanLine:
    """A method on a task. trials, runs: of the search, and at most of the choices' other seeds; done: of both.

    seconds: of one run, and `bytes` of its folder. pooled: bytes of the ensembles' and labelled prediction files.
    """

    task: str
    method: str
    trials: int
    runs: int
    done: int
    seconds: float
    bytes: int
    pooled: int

    @property
    def left(self) -> int:
        """Runs to compute, at most."""
        return self.trials + self.runs - self.done


@dataclass(frozen=True)
class CostPlan:
    """All lines. device: where the probe ran, or "" where a speed was stated, in training images of MAP per second and GPU.

    parallel: runs at once, None where the cluster decides; drawn_bytes: of images still to be drawn.
    """

    study: Study
    lines: list[PlanLine]
    device: str
    parallel: int | None
    drawn_bytes: int
    free_bytes: int
    images_per_second: float | None = None

    @property
    def seconds(self) -> float:
        """Device-seconds of all remaining runs."""
        return sum(line.left * line.seconds for line in self.lines)

    @property
    def bytes(self) -> int:
        """Bytes of disk that are still needed."""
        return self.drawn_bytes + sum(line.left * line.bytes + line.pooled for line in self.lines)


def make_plan(
    study: Study,
    out: Path,
    engine: Resources,
    parallel: int | None,
    threads: int,
    progress: Progress = QUIET,
    images_per_second: float | None = None,
) -> CostPlan:
    """Time one probe per method and image size, or price runs by a stated speed; nothing is written below `out`."""
    every = cells(study, out)
    costs: dict[tuple[str, int], Cost] = {}
    lines = []
    what = "Timing a few steps of every method" if images_per_second is None else "Counting"
    with progress.track(what, len(every), unit="methods") as advance:
        for label in study.tasks:
            sizes, there = _split_sizes(study, label, out, images_per_second), _is_there(study, label, out)
            ready = open_task(study, label, out) if there else None
            mine = [cell for cell in every if cell.task == label]
            if images_per_second is None:
                with _probe_task(study, label, out) as task:
                    for cell in mine:
                        key = (cell.method, task.data.size)
                        if key not in costs:
                            costs[key] = probe(cell.base, task, engine, threads)
                        lines.append(_line(study, cell, costs[key], sizes, ready))
                        advance(1)
            else:
                priced = [(cell, stated_cost(cell.base, images_per_second)) for cell in mine]
                lines += [_line(study, cell, cost, sizes, ready) for cell, cost in priced]
                advance(len(mine))
    return CostPlan(
        study,
        lines,
        "" if images_per_second is not None else str(engine.torch_device()),
        parallel,
        _bytes_to_draw(study, out),
        shutil.disk_usage(_existing(out)).free,
        images_per_second,
    )


def _bytes_to_draw(study: Study, out: Path) -> int:
    """Return the bytes of the images that are still to be drawn; tasks that draw alike share them."""
    drawn = {
        task.draw
        for label, task in study.tasks.items()
        if task.draw is not None and not is_drawn(study, label, out)
    }
    return sum(len(synthetic.records(None, one.images, one.seed)) * 3 * one.size**2 for one in drawn)


def _existing(out: Path) -> Path:
    return next(folder for folder in (out.resolve(), *out.resolve().parents) if folder.exists())


def _is_there(study: Study, label: str, out: Path) -> bool:
    """Tell whether the prepared data of a task are there."""
    given = study.tasks[label]
    if given.draw is not None:
        return is_drawn(study, label, out)
    return all(prepared(Path(folder)) for folder in (given.data, given.shifted) if folder is not None)


def _split_sizes(study: Study, label: str, out: Path, images_per_second: float | None) -> dict[str, int]:
    """Return how many images every split of a task has, or will have."""
    given = study.tasks[label]
    if _is_there(study, label, out):
        return {name: len(rows) for name, rows in open_task(study, label, out).splits.items()}
    if given.draw is not None:
        records = synthetic.records(None, given.draw.images, given.draw.seed)
        return {name: len(rows) for name, rows in TASKS[given.task or label].divide(records).items()}
    if images_per_second is None:
        raise InputError(
            f"tasks.{label}: the data are not prepared, and no method can be timed on them",
            hint="Prepare them, or give a speed: --images-per-second.",
        )
    assert given.data is not None
    shifted = None if given.shifted is None else given.shifted_dataset or Path(given.shifted).name
    return expected_sizes(given.task or label, given.dataset or Path(given.data).name, shifted)


def _line(study: Study, cell: StudyCell, cost: Cost, sizes: dict[str, int], task: Task | None) -> PlanLine:
    known = trials(study, cell)
    done = 0
    if task is not None and cell.runs.is_dir():
        done = sum((folder_of(run, cell, task) / "done").is_file() for run in known)
        names = {folder_of(run, cell, task).name for run in known}
        own = cell.runs.glob(f"{cell.base.method.name}-*/done")
        others = sum(file.parent.name not in names for file in own)
        done += min(others, most_runs(study)) if cell.beside is None else 0
    if cell.beside is not None:  # nothing is trained
        sizes = {**sizes, "train": 1}
    samples = cell.base.method.samples
    pooled = len(ensembles(study)) * study.ensemble + len(study.run_seeds)
    folds = study.folds or 1
    return PlanLine(
        cell.task,
        cell.method,
        len(known),
        most_runs(study),
        done,
        folds * cost.seconds(cell.base, sizes),
        folds * cost.bytes(cell.base, sizes),
        len(study.choices) * pooled * prediction_bytes(sizes, samples),
    )


@contextmanager
def _probe_task(study: Study, label: str, out: Path) -> Iterator[Task]:
    """Yield the task where its data exist, else one on a few images drawn for the probe."""
    if is_drawn(study, label, out):
        yield open_task(study, label, out)
        return
    given = study.tasks[label]
    assert given.draw is not None
    few = Drawn(images=PROBE_IMAGES, size=given.draw.size, seed=given.draw.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "drawn"
        draw(few, folder)
        alone = given.model_copy(update={"draw": None, "data": str(folder)})
        yield open_task(study.model_copy(update={"tasks": {label: alone}}), label, out)
