"""The local engine: jobs in processes of this machine; a kill, a crash or an exception ends one job only.

A process is spawned for each place, and computes one job after the other, so that PyTorch is imported once. After an
error the process is replaced too, since its state is not known.
"""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

from retinabench.core.progress import QUIET, Progress
from retinabench.core.subprocesses import begin, environment, threads
from retinabench.experiments.engines.jobs import Job, Outcome, State
from retinabench.experiments.engines.scheduler import JobResult, ScheduledJob, compute
from retinabench.experiments.engines.worker import JobRequest, request_for, run_request

KILLED_FOR_MEMORY = Path(
    "/proc/vmstat"
)  # counts, on Linux, how many processes the kernel killed for lack of memory
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class LocalEngine:
    """`places` processes of `threads` threads each; place i sees the GPUs `gpus[i]` where there are any.

    Where `processes` is more than one, so many train each run together, below the process of its place.
    """

    places: int
    threads: int = 1
    device: str = "auto"
    gpus: Sequence[str] = ()
    attempts: int = 2
    progress: Progress = QUIET
    processes: int = 1
    readers: int | None = None

    def compute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Yield the outcome of every job exactly once, as they end."""
        return compute(jobs, lambda: contextlib.closing(Pool(self)), self.attempts, self.progress)


@dataclass
class _Child:
    """A process at a place; its job, since when, and how many processes were killed for memory before."""

    place: int
    process: multiprocessing.process.BaseProcess
    connection: Connection
    job: ScheduledJob
    began: float
    killed_for_memory: int


@dataclass
class Pool:
    """The processes of a `LocalEngine`, at work or idle."""

    engine: LocalEngine
    _busy: dict[Connection, _Child] = field(default_factory=dict)
    _idle: list[_Child] = field(default_factory=list)

    def room(self) -> int:
        """Return how many places are free."""
        return self.engine.places - len(self._busy)

    def start(self, job: ScheduledJob, number: int) -> None:
        """Give a job to an idle process, or to a new one."""
        child = self._idle.pop() if self._idle else self._spawn(job)
        child.job, child.began, child.killed_for_memory = job, time.perf_counter(), _killed_for_memory()
        self._busy[child.connection] = child
        # One that ended while it was idle is found by `ended`.
        with contextlib.suppress(OSError):
            engine = self.engine
            child.connection.send(
                request_for(job, number, engine.device, engine.threads, engine.processes, engine.readers)
            )

    def ended(self) -> list[tuple[ScheduledJob, JobResult]]:
        """Wait until a job has ended; return all that have."""
        ready = wait(list(self._busy))
        return [self._end(child) for connection, child in list(self._busy.items()) if connection in ready]

    def close(self) -> None:
        """End all processes; what they were computing is continued by the next command."""
        for child in (*self._busy.values(), *self._idle):
            child.process.kill()
            child.process.join()
            child.connection.close()
        self._busy.clear()
        self._idle.clear()

    def _spawn(self, job: ScheduledJob) -> _Child:
        place = min(set(range(self.engine.places)) - {child.place for child in self._busy.values()})
        changes = threads(self.engine.threads)
        if self.engine.gpus:
            changes["CUDA_VISIBLE_DEVICES"] = self.engine.gpus[place]
        ours, theirs = SPAWN.Pipe()
        # A daemon may have no processes of its own.
        alone = self.engine.processes == 1 and not self.engine.readers and not self.engine.gpus
        process = SPAWN.Process(target=_serve, args=(theirs,), daemon=alone)
        with environment(changes):
            process.start()
        theirs.close()  # the child's end is closed with the child
        return _Child(place, process, ours, job, 0.0, 0)

    def _end(self, child: _Child) -> tuple[ScheduledJob, JobResult]:
        del self._busy[child.connection]
        try:
            result: JobResult = child.connection.recv()
        except (EOFError, OSError):
            child.process.join()
            result = self._died(child)
        if result.state in ("done", "diverged"):
            self._idle.append(child)
        else:
            child.process.kill()
            child.process.join()
            child.connection.close()
        return child.job, result

    def _died(self, child: _Child) -> JobResult:
        code = child.process.exitcode or 0
        state: State = "failed"
        if code >= 0:
            message = f"its process ended with exit code {code}"
        else:
            message = f"its process was ended by {signal.Signals(-code).name}"
            if -code == signal.SIGKILL and _killed_for_memory() > child.killed_for_memory:
                state = "out_of_memory"
                message += ": the machine ran out of memory. Compute fewer at a time."
        return JobResult(state, time.perf_counter() - child.began, message)


def _serve(connection: Connection) -> None:
    """Compute the requests that come until the pool is closed."""
    begin()
    faulthandler.enable(file=2)  # the descriptor, which leads to the log of the job
    while True:
        try:
            request: JobRequest = connection.recv()
        except EOFError:
            os._exit(0)
        connection.send(run_request(request))


def _killed_for_memory() -> int:
    with contextlib.suppress(OSError):
        for line in KILLED_FOR_MEMORY.read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
