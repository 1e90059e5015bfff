"""Child processes: spawned with an environment of their own, deaf to Ctrl-C, and never left behind."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


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
