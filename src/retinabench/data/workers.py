"""Shards by several processes: spawned, one thread each, and never left behind."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from retinabench.data.shards import Shard, make_shard
from retinabench.errors import WorkError
from retinabench.processes import begin, environment, threads


def make_shards(shards: list[Shard], workers: int) -> Iterator[int]:
    """Make shards, in any order; yield for each how many images it is for.

    Raises `WorkError` where the disk is full or a process was killed.
    """
    if workers <= 1:
        yield from map(make_shard, shards)
        return
    # A forked child would inherit the locks of the parent's threads.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), begin)
    with environment(threads(1)), pool:  # the processes already share the cores
        futures: list[Future[int]] = [pool.submit(make_shard, shard) for shard in shards]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool:
            raise WorkError(
                "a worker was killed, perhaps for lack of memory. Repeat the command, with --workers 1."
            ) from None
        finally:
            for future in futures:
                future.cancel()
