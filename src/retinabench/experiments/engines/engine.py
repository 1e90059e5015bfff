"""The choice of an engine from a command's options, and the local one: jobs in processes of this machine.

A process is spawned for each place and computes one job after the other, so that PyTorch is imported once. A kill, a crash or
an exception ends one job only; the process is then replaced.
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
from typing import Literal

import torch

from retinabench.core.errors import QUIET, InputError, Progress
from retinabench.core.subprocesses import begin, cores, environment, threads
from retinabench.experiments.engines.ray_cluster import ray_engine
from retinabench.experiments.engines.scheduler import Job, JobEngine, JobResult, Outcome, ScheduledJob, compute
from retinabench.experiments.engines.worker import JobRequest, request_for, run_request
from retinabench.experiments.execution import Resources

# Counts, on Linux, how many processes the kernel killed for lack of memory.
KILLED_FOR_MEMORY = Path("/proc/vmstat")
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class LocalEngine:
    """`places` places of `threads` threads each, place i with the GPUs `gpus[i]` where there are any; each run is trained by `processes` processes together."""

    places: int
    threads: int = 1
    device: str = "auto"
    gpus: Sequence[str] = ()
    attempts: int = 2
    progress: Progress = QUIET
    processes: int = 1
    readers: int | None = None

    def compute(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
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
        return self.engine.places - len(self._busy)

    def start(self, job: ScheduledJob, number: int) -> None:
        child = self._idle.pop() if self._idle else self._spawn(job)
        child.job, child.began, child.killed_for_memory = job, time.perf_counter(), _killed_for_memory()
        self._busy[child.connection] = child
        # One that ended while it was idle is found by `ended`.
        with contextlib.suppress(OSError):
            own = self.engine
            child.connection.send(request_for(job, number, own.device, own.threads, own.processes, own.readers))

    def ended(self) -> list[tuple[ScheduledJob, JobResult]]:
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
        code, seconds = child.process.exitcode or 0, time.perf_counter() - child.began
        if code >= 0:
            return JobResult("failed", seconds, f"its process ended with exit code {code}")
        message = f"its process was ended by {signal.Signals(-code).name}"
        if -code != signal.SIGKILL or _killed_for_memory() <= child.killed_for_memory:
            return JobResult("failed", seconds, message)
        scarce = "the machine ran out of memory. Compute fewer at a time."
        return JobResult("out_of_memory", seconds, f"{message}: {scarce}")


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


def make_engine(
    name: Literal["local", "ray"],
    *,
    parallel: int | None,
    device: str,
    address: str | None,
    cpus: float,
    gpus: float,
    storage: str | None,
    progress: Progress,
    readers: int | None = None,
) -> JobEngine:
    """Return an engine; nothing is started before it has jobs.

    A run computes with floor(`cpus`) threads, at least one, on which its bits depend. `gpus` of each run: a part of one, or several that train
    it together; 0 with the device `auto` means one where there are any. `storage`: URL through which the results of a Ray cluster travel.
    """
    if not (cpus > 0 and gpus >= 0 and (gpus <= 1 or gpus == int(gpus))):
        hint = "It takes more than 0 CPUs, and a part of a GPU or a whole number of them."
        raise InputError(f"a run cannot take {cpus:g} CPUs and {gpus:g} GPUs", hint=hint)
    if gpus > 0 and device == "cpu":
        raise InputError("a run on the CPU takes no GPU", hint="Leave out --gpus, or --device.")
    if name == "ray":
        return ray_engine(
            parallel=parallel, device=device, address=address, cpus=cpus, gpus=gpus, storage=storage, progress=progress,
            readers=readers,
        )  # fmt: skip
    if address is not None or storage is not None:
        raise InputError("--address and --storage are for --engine ray", hint="Leave them out, or add --engine ray.")
    present = visible_gpus() if device in ("auto", "cuda") else []
    if gpus > 0 and not present:
        raise InputError("no GPU here", hint="Leave out --gpus.")
    if gpus > len(present):
        problem = f"a run of {gpus:g} GPUs does not fit: {len(present)} {'is' if len(present) == 1 else 'are'} here"
        raise InputError(problem, hint=f"Give --gpus {len(present)}, or less.")
    each = max(1, int(gpus))  # GPUs that train one run together
    groups = [",".join(present[first : first + each]) for first in range(0, len(present) - each + 1, each)]
    runs = int(1 / gpus + 1e-9) if 0 < gpus < 1 else 1  # that share one GPU
    assigned = [group for group in groups for _ in range(runs)]
    places = parallel or len(assigned) or max(1, int(cores() / cpus))
    if gpus > 0:  # otherwise more runs than GPUs share them where it was asked for
        places = min(places, len(assigned))
    assigned = [assigned[place % len(assigned)] for place in range(places)] if present else []
    return LocalEngine(places, max(1, int(cpus)), device, assigned, progress=progress, processes=each, readers=readers)


def precision_of(name: Literal["local", "ray"], device: str, gpus: float) -> Literal["bfloat16"] | None:
    """Return the precision of runs whose settings name none, which is that of the GPUs that compute them."""
    if name == "local":
        return Resources(device).precision()
    return "bfloat16" if gpus > 0 or device.startswith("cuda") else None


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    return chosen.split(",")[:count] if chosen else [str(number) for number in range(count)]
