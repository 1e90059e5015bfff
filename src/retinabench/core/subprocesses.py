"""Child processes: spawned with an environment of their own, deaf to Ctrl-C, and never left behind."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from retinabench.core.errors import WorkError

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_processes(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Iterator[tuple[int, Result]]:
    """Call `work` with every item, in `workers` processes; yield (number of the item, result) in any order.

    Raises what `work` raises, and `WorkError` where a process was killed.
    """
    if workers <= 1:
        yield from enumerate(map(work, items))
        return
    # A forked child would inherit the locks of the parent's threads.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), begin)
    with environment(threads(1)), pool:  # the processes already share the cores
        futures: dict[Future[Result], int] = {pool.submit(work, item): k for k, item in enumerate(items)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise WorkError(
                "a worker was killed, perhaps for lack of memory. Repeat the command, with --workers 1."
            ) from None
        finally:
            for future in futures:
                future.cancel()


def begin() -> None:
    """Call this first in a child."""
    # Ctrl-C reaches the whole group of processes; only the parent shall speak of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End when the parent does: one that was killed cannot tell, and its workers would wait for work forever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def threads(count: int) -> dict[str, str]:
    """Return the environment in which linear algebra takes `count` threads."""
    return dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(count))


@contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Let children that start within the block see `changes`; libraries read them when they are imported."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
