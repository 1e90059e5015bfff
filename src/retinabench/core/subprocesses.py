"""Child processes: their environment, Ctrl-C, and their end when the parent ends."""

from __future__ import annotations

import ctypes
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from typing import TypeVar

from retinabench.core.errors import WorkError

WAIT_POLICY, SPIN_COUNT = "OMP_WAIT_POLICY", "GOMP_SPINCOUNT"
# Steps of GNU OpenMP before an idle thread sleeps, about 30 microseconds: less delays every layer, more costs other work.
SPINS = "10000"
Item = TypeVar("Item")
Result = TypeVar("Result")


def in_processes(work: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[tuple[int, Result]]:
    """Call `work` with every item in several processes."""
    refuse_import()
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
                "a worker was killed, perhaps for lack of memory, or ended with an error that is printed above."
                " Repeat the command, with --workers 1."
            ) from None
        finally:
            for future in futures:
                future.cancel()


def refuse_import() -> None:
    """Refuse work in a child that imports the script of its parent: without a main guard it would begin all its work, and wait for the parent's lock."""
    # The attribute by which `multiprocessing` itself recognises such a child.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise WorkError(
            "the script starts processes, and each of them runs the script again. Put its calls under"
            ' `if __name__ == "__main__":`.'
        )


def begin() -> None:
    """Call this first in a child."""
    # Ctrl-C reaches the whole group of processes; only the parent reports it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when its parent ends, also when the parent is killed and cannot tell."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def cores() -> int:
    """Return how many cores this process may use, which a batch system may have limited."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def threads(count: int) -> dict[str, str]:
    """Return the environment in which linear algebra takes `count` threads, which sleep while they wait."""
    return {
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(count)),
        **sleeping_threads(),
    }


def sleeping_threads() -> dict[str, str]:
    """Return the environment in which idle OpenMP threads soon sleep; empty where the user has chosen a policy.

    By default they spin for long, and on a machine with other work they spin on cores that the working threads need:
    training with two threads beside one busy process took many times as long. Threads that sleep at once make training
    slower on an idle machine, so GNU OpenMP spins for a short while first (`benchmarks/busy_machine.py` measures both).
    The OpenMP library reads the variables when it is loaded, so they must be set before PyTorch is imported.
    """
    if WAIT_POLICY in os.environ:
        return {}
    return {WAIT_POLICY: "PASSIVE", SPIN_COUNT: os.environ.get(SPIN_COUNT, SPINS)}


def keep_memory() -> None:
    """Let this process and its children keep the memory that they free, unless the user has set up the allocator: clearing pages again costs up to half the time."""
    if any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ):
        return
    with suppress(AttributeError, OSError, TypeError):
        set_option, most_mapped, trim_above = ctypes.CDLL(None).mallopt, -4, -1
        set_option(most_mapped, 0)
        set_option(trim_above, 2**31 - 1)
        os.environ.update(MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_=str(2**31 - 1))


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
