"""Work by several processes: spawned, one thread each, and never left behind."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from retinabench.data.shards import Shard, make_shard
from retinabench.errors import WorkError
from retinabench.processes import begin, environment, threads

Item = TypeVar("Item")
Result = TypeVar("Result")


def make_shards(shards: list[Shard], workers: int) -> Iterator[int]:
    """Make shards, in any order; yield for each how many images it is for.

    Raises `WorkError` where the disk is full or a process was killed.
    """
    for _, images in in_processes(make_shard, shards, workers):
        yield images


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
