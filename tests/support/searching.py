"""Small real things for the tests of searches: engines of this process, a base run and a space."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from retinabench.core.errors import WorkError
from retinabench.core.files import write_bytes
from retinabench.data.tasks import load_task
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.engines.scheduler import Job, Outcome
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute, run_folder
from retinabench.experiments.search.search import search
from retinabench.experiments.search.space import Space, space_of
from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions
from support.helpers import TINY

LR = {"low": 0.001, "high": 1.0, "scale": "log"}
SPACE = {"optimizer": {"lr": LR}, "method": {"rate": {"low": 0.0, "high": 0.5}}}


class Serial:
    """Computes one job after the other in this process, by `work`, and keeps the runs in `computed`."""

    def __init__(self, work: Callable[[Job], Outcome] | None = None) -> None:
        self.work = work or train
        self.computed: list[Run] = []

    def compute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            self.computed.append(job.run)
            yield self.work(job)


def train(job: Job) -> Outcome:
    began = time.perf_counter()
    try:
        folder = execute(job.run, job.out, Resources("cpu"))
    except WorkError as error:
        return Outcome(job, "diverged", None, time.perf_counter() - began, 1, str(error))
    return Outcome(job, "done", folder, time.perf_counter() - began, 1)


def pretend(job: Job) -> Outcome:
    """Write in milliseconds what a run would: answers that are best at a learning rate of 0.03, and diverge above 0.3. More epochs
    make them a little better."""
    lr = job.run.optimizer.lr
    if lr > 0.3:
        return Outcome(job, "diverged", None, 0.5, 1, "the loss term 'cross_entropy' is not finite at step 3")
    task = load_task(job.run.data, job.run.task, job.run.shifted)
    parts = task[tuple(split for split in task.splits if split != "train")]
    random = np.random.default_rng(round(1e6 * lr))
    skill = 3 * math.exp(-(math.log10(lr / 0.03) ** 2)) + 0.1 * job.run.optimizer.epochs
    logit = skill * (2 * parts.label - 1) + random.normal(0, 2, len(parts))
    folder = run_folder(job.run, job.out, task)
    found = Predictions(parts.image_id, parts.label, 1 / (1 + np.exp(-logit)), domain=parts.domain, split=parts.split)
    write_predictions(found, folder / "predictions.parquet")
    write_bytes(folder / "run.json", b"{}")
    write_bytes(folder / "done", b"")
    return Outcome(job, "done", folder, 2.0, 1)


def base_run(data: Path, *words: str) -> Run:
    return load_run(None, [*TINY, "method.name=dropout", *words], data=str(data))


def small_space() -> Space:
    return space_of(SPACE)


def again(data, out, engine=None, trials=8, **options):
    engine = engine or Serial(pretend)
    base = options.pop("base", None) or base_run(data)
    space = options.pop("space", None) or small_space()
    return search(base, space, trials=trials, out=out, engine=engine, **options), engine
