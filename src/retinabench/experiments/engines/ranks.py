"""One run by several processes of this machine, one for each of its GPUs, started as `torchrun` starts them.

`torchrun` itself is not used: its agent and the processes below it would keep running where the worker is killed. These end with the worker.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeVar

from retinabench.core.errors import DivergedError, OutOfMemoryError, WorkError
from retinabench.core.subprocesses import begin, environment
from retinabench.experiments.engines.jobs import State

Request = TypeVar("Request")
SPAWN = multiprocessing.get_context("spawn")
ERRORS: dict[State, type[WorkError]] = {"diverged": DivergedError, "out_of_memory": OutOfMemoryError}


def in_ranks(
    work: Callable[[Request], None],
    classify: Callable[[Exception], tuple[State, str]],
    request: Request,
    count: int,
) -> None:
    """Do `work` in several processes that train together; return when all have.

    Args:
        work: A function of a module, which joins the processes (`methods/training/distributed.py`).
        classify: The state and the line that stand for an exception of `work`.
        request: Its argument.
        count: Number of processes.

    Raises:
        WorkError: One of them failed, in the class of its state; the others are ended.
    """
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "WORLD_SIZE": str(count)}
    started: dict[Connection, BaseProcess] = {}
    try:
        for rank in range(count):
            ours, theirs = SPAWN.Pipe()
            process: BaseProcess = SPAWN.Process(target=_rank, args=(theirs, work, classify, request))
            with environment({**place, "RANK": str(rank), "LOCAL_RANK": str(rank)}):
                process.start()
            theirs.close()
            started[ours] = process
        waiting = list(started)
        while waiting:
            for connection in wait(waiting):
                assert isinstance(connection, Connection)
                waiting.remove(connection)
                _check(connection, started[connection])
    finally:
        for connection, child in started.items():
            child.kill()
            child.join()
            connection.close()


def _check(connection: Connection, process: BaseProcess) -> None:
    """Raise what ended a process, unless it is done."""
    state: State = "failed"
    try:
        state, message = connection.recv()
    except (EOFError, OSError):
        process.join()
        message = f"one of the processes of the run ended with exit code {process.exitcode}"
    if state != "done":
        raise ERRORS.get(state, WorkError)(message)


def _rank(
    connection: Connection,
    work: Callable[[Request], None],
    classify: Callable[[Exception], tuple[State, str]],
    request: Request,
) -> None:
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


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
