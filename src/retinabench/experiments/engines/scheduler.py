"""Jobs, their outcomes, and the scheduler of both engines: what is computed next, tried again, or given up.

A job is idempotent (`run.execute`): computed twice it leaves the same folder with the same bits. So an engine can lose
workers and nodes without losing or double-counting a trial.

A job whose method combines others (`ensemble`, `temperature`) becomes several scheduled jobs: its members, which jobs may
share, and the combination once the members are done.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from retinabench.core.errors import Progress, check
from retinabench.core.files import write_bytes
from retinabench.data.tasks import Task, load_task
from retinabench.experiments.config import Run
from retinabench.experiments.execution import member_runs
from retinabench.experiments.run import run_folder

State = Literal["done", "diverged", "out_of_memory", "failed"]


@dataclass(frozen=True)
class Job:
    """One run, to be computed below the folder `out`."""

    run: Run
    out: Path


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job."""

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


LOSSES = 20  # nodes lost under one job before it is given up: the job itself may be what ends them


@dataclass(frozen=True)
class ScheduledJob:
    """One run and its folder."""

    run: Run
    folder: Path
    needs: tuple[Path, ...] = ()

    @property
    def done(self) -> bool:
        return (self.folder / "done").is_file()

    @property
    def divergence(self) -> Path:
        """The file with the reason why a run diverged; it would diverge again."""
        return self.folder / "diverged"

    @property
    def log(self) -> Path:
        """The file with the output of every start of the run."""
        return self.folder.parent / "logs" / f"{self.folder.name}.log"


@dataclass(frozen=True)
class JobResult:
    """How one start of a job ended."""

    state: State
    seconds: float = 0.0
    message: str = ""
    lost: bool = False


class Workers(Protocol):
    """The processes of this machine or of a cluster that compute jobs."""

    def room(self) -> int:
        """Return how many more jobs they take now: at least one where they have none."""

    def start(self, job: ScheduledJob, number: int) -> None:
        """Start a job for the `number`-th time, from 1."""

    def ended(self) -> Iterable[tuple[ScheduledJob, JobResult]]:
        """Wait until a job has ended; return all that have."""


def compute(
    jobs: Sequence[Job], open_workers: Callable[[], AbstractContextManager[Workers]], attempts: int, progress: Progress
) -> Iterator[Outcome]:
    scheduler = Scheduler(jobs, attempts)
    running, settled = 0, scheduler.settled
    with ExitStack() as opened, progress.track("Runs", scheduler.size, unit="runs") as advance:
        workers = opened.enter_context(open_workers()) if scheduler.ready else None
        while True:
            while workers and scheduler.ready and workers.room() > 0:
                workers.start(*scheduler.start())
                running += 1
            for job, result in settled:  # the workers are busy while the caller handles these
                advance(1)
                if result.state != "done":
                    progress.say(f"{job.folder.name}: {result.state}: {result.message}")
                yield from scheduler.outcomes(job, result)
            if not workers or not running:
                return
            ended = list(workers.ended())
            running -= len(ended)
            settled = []
            for job, result in ended:
                settled += (now := scheduler.end(job, result))
                if not now:
                    progress.say(f"{job.folder.name}: {result.message}; it is tried again")


class Scheduler:
    """Which jobs are ready, which wait for members, and how often each was started."""

    def __init__(self, jobs: Sequence[Job], attempts: int) -> None:
        self._attempts = attempts
        self._data: dict[tuple[str, str, str | None], Task] = {}
        self._wanted: dict[Path, list[Job]] = defaultdict(list)
        self._dependents: dict[Path, list[ScheduledJob]] = defaultdict(list)
        self._missing: dict[Path, set[Path]] = {}
        self._started, self._lost = Counter[Path](), Counter[Path]()
        self._known: dict[Path, ScheduledJob] = {}
        self._before: list[tuple[ScheduledJob, JobResult]] = []
        self.ready: deque[ScheduledJob] = deque()
        for job in jobs:
            self._wanted[self._add(job.run, job.out).folder].append(job)
        self.size = len(self._known)
        # By the rules of `end`: a member that diverged in an earlier command settles what needs it.
        self.settled = [pair for job, result in self._before for pair in self.end(job, result)]

    def _add(self, run: Run, out: Path) -> ScheduledJob:
        """Schedule a run, its members first; those of a finished combination are not needed."""
        place = (run.data, run.task, run.shifted)
        if place not in self._data:
            self._data[place] = load_task(*place)
        folder = run_folder(run, out, self._data[place])
        if folder in self._known:
            return self._known[folder]
        job = ScheduledJob(run, folder)
        before = JobResult("done") if job.done else None  # of an earlier command, where that is final
        if before is None and job.divergence.is_file():
            before = JobResult("diverged", message=check(job.divergence).read_text())
        if before is None and (needed := member_runs(run)):
            members = [self._add(member, out) for member in needed]
            job = ScheduledJob(run, folder, tuple(member.folder for member in members))
            self._missing[folder] = {member.folder for member in members if not member.done}
            for member in self._missing[folder]:
                self._dependents[member].append(job)
        self._known[folder] = job
        if before is not None:
            self._before.append((job, before))
        elif not self._missing.get(folder):
            self.ready.append(job)
        return job

    def start(self) -> tuple[ScheduledJob, int]:
        """Take the next job that is ready; return it and how often it was started, this time included."""
        job = self.ready.popleft()
        self._started[job.folder] += 1
        return job, self._started[job.folder]

    def end(self, job: ScheduledJob, result: JobResult) -> list[tuple[ScheduledJob, JobResult]]:
        """Record a result; return what it settles: nothing where the job will be tried again."""
        if result.state != "done" and job.done:  # ended by force after its last write
            result = JobResult("done", result.seconds)
        if result.state == "diverged" and not job.divergence.is_file():
            write_bytes(job.divergence, result.message.encode())
        if result.state == "done":
            for dependent in self._dependents.pop(job.folder, ()):
                missing = self._missing.get(dependent.folder)
                if missing is None:  # given up for another member
                    continue
                missing.discard(job.folder)
                if not missing:
                    self.ready.appendleft(dependent)
            return [(job, result)]
        self._lost[job.folder] += result.lost
        counted = self._started[job.folder] - self._lost[job.folder]
        if result.state != "diverged" and counted < self._attempts and self._lost[job.folder] < LOSSES:
            self.ready.append(job)
            return []
        return [(job, result), *self._give_up(job, result)]

    def _give_up(self, job: ScheduledJob, result: JobResult) -> Iterator[tuple[ScheduledJob, JobResult]]:
        """Yield the results of the jobs that need one that failed; with several such members, by the first."""
        failed = JobResult(result.state, message=f"its member {job.folder.name}: {result.message}")
        for dependent in self._dependents.pop(job.folder, ()):
            if self._missing.pop(dependent.folder, None):
                yield dependent, failed
                yield from self._give_up(dependent, failed)

    def outcomes(self, job: ScheduledJob, result: JobResult) -> Iterator[Outcome]:
        logs = [job.log, *(ScheduledJob(job.run, folder).log for folder in job.needs)]
        log, started = next((log for log in logs if log.is_file()), None), self._started[job.folder]
        folder = job.folder if job.folder.is_dir() else None
        for wanted in self._wanted.get(job.folder, ()):
            yield Outcome(wanted, result.state, folder, result.seconds, started, result.message, log)
