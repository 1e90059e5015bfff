"""Shards by several processes."""

from __future__ import annotations

from collections.abc import Iterator

from retinabench.core.subprocesses import in_processes
from retinabench.data.ingest.shards import Shard, make_shard


def make_shards(shards: list[Shard], workers: int) -> Iterator[int]:
    """Make shards, in any order; yield for each how many images it is for.

    Raises `WorkError` where the disk is full or a process was killed.
    """
    for _, images in in_processes(make_shard, shards, workers):
        yield images
