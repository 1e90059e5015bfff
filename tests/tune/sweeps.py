"""Small real things for the tests of searches: an engine of this process, a base run and spaces that take seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from helpers import TINY
from retinabench.config import Run, load_run
from retinabench.errors import WorkError
from retinabench.run import Engine, execute
from retinabench.tune.jobs import Job, Outcome
from retinabench.tune.space import Space, space_of

SPACE = {
    "optimizer": {"lr": {"low": 0.005, "high": 0.2, "scale": "log"}},
    "method": {"rate": {"low": 0.0, "high": 0.5}},
}


class Serial:
    """Computes one job after the other in this process; counts them. `stop_after` jobs it is killed, as it were."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.computed: list[Run] = []
        self.stop_after = stop_after

    def compute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        for job in jobs:
            if len(self.computed) == self.stop_after:
                raise KeyboardInterrupt
            self.computed.append(job.run)
            yield outcome(job)


def outcome(job: Job) -> Outcome:
    began = time.perf_counter()
    try:
        folder = execute(job.run, job.out, Engine("cpu"))
    except WorkError as error:
        state = "diverged" if "finite" in str(error) or "no numbers" in str(error) else "failed"
        return Outcome(job, state, None, time.perf_counter() - began, 1, str(error))
    return Outcome(job, "done", folder, time.perf_counter() - began, 1)


def base_run(data: Path, *words: str) -> Run:
    return load_run(None, [*TINY, "method.name=dropout", *words], data=str(data))


def small_space() -> Space:
    return space_of(SPACE)
