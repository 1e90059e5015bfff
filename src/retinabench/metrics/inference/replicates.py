"""Many rows of a result, in blocks over threads.

Threads and not processes: NumPy lets other threads run while it computes on large arrays, the images and their indexes are in
memory once, and a script needs no guard around its main part. Blocks depend on the size of the problem only, and each
uses one BLAS thread, so that no result depends on the number of threads. (BLAS threads also spin while they wait: a
product of two vectors of 45,000 numbers made several cores busy for nothing.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

Floats = NDArray[np.float64]
BLOCK = 2**16
"""Numbers in one matrix of a block: small enough for a cache, large enough that calls cost little beside the work."""
SMALL = 2**22
"""Numbers in all rows below which one thread is as fast as several."""


def cores() -> int:
    """Return the number of cores that this process may use; `OMP_NUM_THREADS` can lower it."""
    try:
        free = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        free = os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(free, int(asked)) if asked.isdigit() and int(asked) > 0 else free


def one_blas_thread() -> AbstractContextManager[object]:
    """Return the context in which BLAS computes with one thread."""
    limit: AbstractContextManager[object] = _libraries().limit(limits=1, user_api="blas")
    return limit


@cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()  # looks through all loaded libraries, which takes milliseconds


class Steps:
    """Tells a bar of whole steps about work in parts of unequal size.

    Args:
        advance: Called with the number of further steps.
        steps: Number of steps when all work is done.
        work: All work, in any unit.
    """

    def __init__(self, advance: Callable[[int], None], steps: int, work: float) -> None:
        self._advance, self._rate = advance, steps / work
        self._done, self._told = 0.0, 0

    def add(self, work: float) -> None:
        """Note that more work is done."""
        self._done += work * self._rate
        further = round(self._done) - self._told
        self._told += further
        self._advance(further)


def stacked(
    rows: Callable[[range], Floats],
    count: int,
    size: int,
    *,
    workers: int | None = None,
    advance: Callable[[int], None] | None = None,
) -> Floats:
    """Return `count` rows, computed in blocks.

    Args:
        rows: Numbers of b rows -> (b, K).
        count: Number of rows.
        size: Numbers that a row works on, such as images.
        workers: Threads; None for one per core, or one where that is as fast.
        advance: Called with the number of rows of every block that is done.

    Returns:
        (count, K).
    """
    length = max(1, BLOCK // size)
    blocks = [range(start, min(start + length, count)) for start in range(0, count, length)]
    if workers is None:
        workers = 1 if count * size < SMALL else cores()
    if length * size > 2**15:
        keep_memory()
    found = []
    with one_blas_thread(), _mapped(rows, blocks, workers) as results:
        for block, result in zip(blocks, results, strict=True):
            found.append(result)
            if advance is not None:
                advance(len(block))
    return np.concatenate(found)


def keep_memory() -> None:
    """Let glibc keep freed memory for the next block.

    By default it returns the end of the heap to the system where more is free than twice the largest array that was ever freed;
    the next block then waits for the same pages to be cleared, which took 40 % of the time. Elsewhere this does nothing.
    """
    np.empty(31 * 2**20, np.uint8)


@contextmanager
def _mapped(rows: Callable[[range], Floats], blocks: list[range], workers: int) -> Iterator[Iterator[Floats]]:
    """Results of the blocks, in their order."""
    if min(workers, len(blocks)) < 2:
        yield map(rows, blocks)
        return
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield pool.map(rows, blocks)
        except BaseException:  # Ctrl-C too: blocks that have begun end soon, the others are given up
            pool.shutdown(wait=False, cancel_futures=True)
            raise
