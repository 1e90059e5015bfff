"""Jobs and their outcomes: the contract between searches and studies, and the engines that compute them.

A job is idempotent (`run.execute`): computed twice it leaves the same folder with the same bits. That is all an engine
needs to know to lose workers and nodes without losing or double-counting a trial.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from retinabench.experiments.config import Run

State = Literal["done", "diverged", "out_of_memory", "failed"]


@dataclass(frozen=True)
class Job:
    """One run, to be computed below the folder `out`."""

    run: Run
    out: Path


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job.

    Args:
        job: The job.
        state: `done`; `diverged` (a loss or prediction is not finite: deterministic, hence not tried again);
            `out_of_memory`; or `failed` for any other reason.
        folder: The run's folder, where it got that far.
        seconds: Time of the last start.
        attempts: How often it was started.
        message: One line, empty when done.
        log: The file with its output.
    """

    job: Job
    state: State
    folder: Path | None
    seconds: float
    attempts: int
    message: str = ""
    log: Path | None = None


class JobEngine(Protocol):
    """Computes jobs: `LocalEngine` in processes of this machine, `RayEngine` on a cluster."""

    def compute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Yield the outcome of every job exactly once, as they end; a failing job does not stop the others."""
