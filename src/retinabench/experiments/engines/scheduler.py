"""What an engine computes next, tries again, or gives up: the bookkeeping of both engines, free of processes.

A job whose method composes others (`ensemble`, `temperature`) becomes several tasks: its members, shared between jobs,
and the composition once they are there. Only open tasks reach the workers, and never more than they have room for: of a
sweep of 10,000 trials that is continued, those done before cost a look at one file each.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from retinabench.core.atomic_files import write_bytes
from retinabench.core.progress import Progress
from retinabench.data.tasks import Task as DividedData
from retinabench.data.tasks import load_task
from retinabench.experiments.config import Run
from retinabench.experiments.engines.jobs import Job, Outcome, State
from retinabench.experiments.execution import is_composed
from retinabench.experiments.run import run_folder
from retinabench.methods.registry import METHODS

LOSSES = 20  # nodes lost under one task before it is given up: perhaps it is what ends them


@dataclass(frozen=True)
class Task:
    """One run and its folder; `needs` are its members' folders, which must be done before."""

    run: Run
    folder: Path
    needs: tuple[Path, ...] = ()

    @property
    def done(self) -> bool:
        """Say whether the folder holds a finished run."""
        return (self.folder / "done").is_file()

    @property
    def divergence(self) -> Path:
        """The file that says why a run diverged: it would do so again."""
        return self.folder / "diverged"

    @property
    def log(self) -> Path:
        """The file in which its attempts say what they do, one after the other."""
        return self.folder.parent / "logs" / f"{self.folder.name}.log"


@dataclass(frozen=True)
class Attempt:
    """What came of one attempt at a task. lost: its node went away, for which the task is not to blame."""

    state: State
    seconds: float = 0.0
    message: str = ""
    lost: bool = False


class Workers(Protocol):
    """Those who compute tasks: processes of this machine, or a cluster."""

    def room(self) -> int:
        """Return how many more tasks they take now: at least one where they have none."""

    def start(self, task: Task, number: int) -> None:
        """Begin an attempt at a task, its `number`-th from 1."""

    def ended(self) -> Iterable[tuple[Task, Attempt]]:
        """Wait until an attempt has ended; return all that have."""


def compute(
    jobs: Sequence[Job],
    open_workers: Callable[[], AbstractContextManager[Workers]],
    attempts: int,
    progress: Progress,
) -> Iterator[Outcome]:
    """Yield the outcome of every job as it ends. Workers are opened only where there is something to do.

    A task that fails or lacks memory is started `attempts` times, behind all others; one that diverges, once.
    """
    book = Book(jobs, attempts)
    running, settled = 0, book.settled
    with ExitStack() as opened, progress.track("Runs", book.size, unit="runs") as advance:
        workers = opened.enter_context(open_workers()) if book.ready else None
        while True:
            while workers and book.ready and workers.room() > 0:
                workers.start(*book.start())
                running += 1
            for task, attempt in settled:  # the workers are busy while the caller looks at these
                advance(1)
                if attempt.state != "done":
                    progress.say(f"{task.folder.name}: {attempt.state}: {attempt.message}")
                yield from book.outcomes(task, attempt)
            if not workers or not running:
                return
            ended = list(workers.ended())
            running -= len(ended)
            settled = []
            for task, attempt in ended:
                settled += (now := book.end(task, attempt))
                if not now:
                    progress.say(f"{task.folder.name}: {attempt.message}; it is tried again")


class Book:
    """Which tasks are ready, which wait for members, and how often each was started."""

    def __init__(self, jobs: Sequence[Job], attempts: int) -> None:
        self._attempts = attempts
        self._data: dict[tuple[str, str, str | None], DividedData] = {}
        self._wanted: dict[Path, list[Job]] = defaultdict(list)
        self._dependents: dict[Path, list[Task]] = defaultdict(list)
        self._missing: dict[Path, set[Path]] = {}
        self._started, self._lost = Counter[Path](), Counter[Path]()
        self._known: dict[Path, Task] = {}
        self._before: list[tuple[Task, Attempt]] = []
        self.ready: deque[Task] = deque()
        for job in jobs:
            self._wanted[self._add(job.run, job.out).folder].append(job)
        self.size = len(self._known)
        # By the rules of `end`: a member that diverged in an earlier command settles what needs it.
        self.settled = [pair for task, attempt in self._before for pair in self.end(task, attempt)]

    def _add(self, run: Run, out: Path) -> Task:
        """Enter a run, its members first; those of a finished composition are not needed."""
        place = (run.data, run.task, run.shifted)
        if place not in self._data:
            self._data[place] = load_task(*place)
        folder = run_folder(run, out, self._data[place])
        if folder in self._known:
            return self._known[folder]
        task, method = Task(run, folder), METHODS[run.method.name]
        before = _before(task)
        if is_composed(method) and before is None:
            members = [self._add(member, out) for member in method.member_runs(run)]
            task = Task(run, folder, tuple(member.folder for member in members))
            self._missing[folder] = {member.folder for member in members if not member.done}
            for member in self._missing[folder]:
                self._dependents[member].append(task)
        self._known[folder] = task
        if before is not None:
            self._before.append((task, before))
        elif not self._missing.get(folder):
            self.ready.append(task)
        return task

    def start(self) -> tuple[Task, int]:
        """Take the next task that is ready; return it and how often it was started, this time included."""
        task = self.ready.popleft()
        self._started[task.folder] += 1
        return task, self._started[task.folder]

    def end(self, task: Task, attempt: Attempt) -> list[tuple[Task, Attempt]]:
        """Note what came of an attempt; return what is settled by it: nothing where it will be tried again."""
        if attempt.state != "done" and task.done:  # ended by force after its last write
            attempt = Attempt("done", attempt.seconds)
        if attempt.state == "diverged" and not task.divergence.is_file():
            write_bytes(task.divergence, attempt.message.encode())
        if attempt.state == "done":
            for dependent in self._dependents.pop(task.folder, ()):
                missing = self._missing.get(dependent.folder)
                if missing is None:  # given up for another member
                    continue
                missing.discard(task.folder)
                if not missing:
                    self.ready.appendleft(dependent)
            return [(task, attempt)]
        self._lost[task.folder] += attempt.lost
        counted = self._started[task.folder] - self._lost[task.folder]
        if attempt.state != "diverged" and counted < self._attempts and self._lost[task.folder] < LOSSES:
            self.ready.append(task)
            return []
        return [(task, attempt), *self._give_up(task, attempt)]

    def _give_up(self, task: Task, attempt: Attempt) -> Iterator[tuple[Task, Attempt]]:
        """Settle what needs a task that failed; with several such members, by the first."""
        failed = Attempt(attempt.state, message=f"its member {task.folder.name}: {attempt.message}")
        for dependent in self._dependents.pop(task.folder, ()):
            if self._missing.pop(dependent.folder, None):
                yield dependent, failed
                yield from self._give_up(dependent, failed)

    def outcomes(self, task: Task, attempt: Attempt) -> Iterator[Outcome]:
        """Return what came of the jobs that are this task."""
        logs = [task.log, *(Task(task.run, folder).log for folder in task.needs)]
        for job in self._wanted.get(task.folder, ()):
            yield Outcome(
                job=job,
                state=attempt.state,
                folder=task.folder if task.folder.is_dir() else None,
                seconds=attempt.seconds,
                attempts=self._started[task.folder],
                message=attempt.message,
                log=next((log for log in logs if log.is_file()), None),
            )


def _before(task: Task) -> Attempt | None:
    """Return what came of a task in an earlier command, where that is final."""
    if task.done:
        return Attempt("done")
    if task.divergence.is_file():
        return Attempt("diverged", message=task.divergence.read_text())
    return None
