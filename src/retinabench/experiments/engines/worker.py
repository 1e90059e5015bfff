"""A worker: one start of a job in this process or in one process per GPU, its output in a log, its end in one line.

Both engines use it, with the same number of threads, so that a run has the same bits in both.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import platform
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TypeVar

import torch

from retinabench.core import errors
from retinabench.core.errors import DivergedError, InputError, OutOfMemoryError, WorkError, printable
from retinabench.core.files import explain
from retinabench.core.results import JsonObject
from retinabench.core.subprocesses import begin, environment
from retinabench.core.version import __version__
from retinabench.data.loader import is_out_of_memory
from retinabench.data.tasks import load_task
from retinabench.experiments.config import Run
from retinabench.experiments.engines.scheduler import JobResult, ScheduledJob, State
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute, run_folder

Request = TypeVar("Request")
SPAWN = multiprocessing.get_context("spawn")
ERRORS: dict[State, type[WorkError]] = {"diverged": DivergedError, "out_of_memory": OutOfMemoryError}


def in_ranks(work: Callable[[Request], None], request: Request, count: int) -> None:
    """Do `work` in several processes that train together; return when all have."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
    started: dict[Connection, BaseProcess] = {}
    try:
        for rank in range(count):
            ours, theirs = SPAWN.Pipe()
            process: BaseProcess = SPAWN.Process(target=_rank, args=(theirs, work, request))
            with environment({**place, "RANK": str(rank), "LOCAL_RANK": str(rank)}):
                process.start()
            theirs.close()
            started[ours] = process
        waiting = list(started)
        while waiting:
            for connection in wait(waiting):
                assert isinstance(connection, Connection)
                waiting.remove(connection)
                state: State = "failed"
                try:
                    state, message = connection.recv()
                except (EOFError, OSError):
                    started[connection].join()
                    code = started[connection].exitcode
                    message = f"one of the processes of the run ended with exit code {code}"
                if state != "done":
                    raise ERRORS.get(state, WorkError)(message)
    finally:
        for connection, child in started.items():
            child.kill()
            child.join()
            connection.close()


def _rank(connection: Connection, work: Callable[[Request], None], request: Request) -> None:
    begin()
    try:
        work(request)
        ended: tuple[State, str] = ("done", "")
    except Exception as error:
        ended = classify(error)
    with contextlib.suppress(OSError):
        connection.send(ended)
    if ended[0] != "done":
        os._exit(1)  # the group of processes cannot be left in order: the others wait for this one


@dataclass(frozen=True)
class JobRequest:
    """A job in plain values, as it is sent to a worker."""

    run: JsonObject
    folder: Path
    log: Path
    number: int
    device: str
    threads: int
    versions: dict[str, str]
    processes: int = 1
    readers: int | None = None


def request_for(
    job: ScheduledJob, number: int, device: str, threads: int, processes: int = 1, readers: int | None = None
) -> JobRequest:
    """Return the request for the `number`-th start of a job; paths are absolute: workers start in other folders."""
    run = job.run.model_dump(mode="json")
    paths = {key: str(Path(run[key]).absolute()) for key in ("data", "shifted") if run[key] is not None}
    folder, log = job.folder.absolute(), job.log.absolute()
    return JobRequest(run | paths, folder, log, number, device, threads, versions(), processes, readers)


def versions() -> dict[str, str]:
    return {"retinabench": __version__, "torch": torch.__version__}


def execute_request(request: JobRequest) -> None:
    """Compute a run, in this process or in several that train together."""
    if request.processes > 1:
        in_ranks(execute_request, replace(request, processes=1), request.processes)
        return
    if versions() != request.versions:
        problem = f"{host()} has {_listed(versions())}, and the command was given with {_listed(request.versions)}"
        raise InputError(problem, hint="Install the same on all nodes.")
    run = Run(**request.run)
    task = load_task(run.data, run.task, run.shifted)
    if run_folder(run, request.folder.parent, task) != request.folder:
        hint = "Prepare it once, and give all nodes the same folder."
        raise InputError(f"holds other data on {host()} than where the command was given", file=run.data, hint=hint)
    torch.set_num_threads(request.threads)
    execute(run, request.folder.parent, Resources(request.device, request.readers, _Printed()))


def run_request(request: JobRequest, work: Callable[[JobRequest], None] = execute_request) -> JobResult:
    """Do the `work` of a request; an exception becomes a `JobResult`, and its traceback goes to the log."""
    state: State
    began, state, message = time.perf_counter(), "done", ""
    try:
        with output_to(request.log):
            print(f"--- start {request.number}, {datetime.now(UTC):%F %T} UTC, {host()}, process {os.getpid()}")
            try:
                work(request)
            except Exception as error:
                state, message = classify(error)
                traceback.print_exc()
    except OSError as error:  # the log cannot be written
        if state == "done":
            state, message = classify(explain(error, request.log))
    return JobResult(state, time.perf_counter() - began, message)


def classify(error: Exception) -> tuple[State, str]:
    state: State = next((state for state, kind in ERRORS.items() if isinstance(error, kind)), "failed")
    if isinstance(error, (InputError, WorkError)):
        return state, str(error)
    text = printable(str(error).strip().partition("\n")[0], 300)
    message = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return ("out_of_memory" if is_out_of_memory(error) else "failed"), message


def host() -> str:
    return platform.node() or "this machine"


class _Printed(errors.Quiet):
    """Notes go to the log; bars are drawn where the command was given."""

    def say(self, line: str) -> None:
        print(line)


@contextmanager
def output_to(path: Path) -> Iterator[None]:
    """Append what this process prints to a file, also what libraries and a crash write past Python."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = errors.open_in_place(path, os.O_WRONLY | os.O_APPEND)
    saved = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    with os.fdopen(descriptor, "a", buffering=1) as log, redirect_stdout(log), redirect_stderr(log):
        try:
            for descriptor, _ in saved:
                os.dup2(log.fileno(), descriptor)
            yield
        finally:
            for descriptor, before in saved:
                os.dup2(before, descriptor)
                os.close(before)


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(map(" ".join, versions.items()))
