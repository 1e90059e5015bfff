"""Runs that take tens of milliseconds, for tests of those who compute many: their bits, and the processes behind them."""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from retinabench.experiments.config import Run, load_run

SLOW = 50  # epochs: half a second and more, long enough to be met in the middle
BITS = ("predictions.parquet", "posterior.pt")  # the other files hold seconds
PATIENCE = 120  # seconds, on a machine that is busy with other things
PROCESS = re.compile(r"process (\d+)")


def small(prepared: Path, *words: str) -> Run:
    settings = ("model.name=mlp", "model.width=8", "optimizer.epochs=2", "optimizer.batch_size=16")
    return load_run(None, [*settings, *words], data=str(prepared))


def sweep(prepared: Path, seeds: int) -> list[Run]:
    """Single runs, one slow, and compositions that share some of them."""
    singles = [small(prepared, f"seed={seed}") for seed in range(seeds)]
    slow = small(prepared, "seed=9", f"optimizer.epochs={SLOW}")
    ensemble = small(prepared, 'method={name="ensemble",members=2}')
    tempered = small(prepared, "method.name=temperature", "seed=2")
    return [*singles[:1], slow, ensemble, *singles[1:], tempered]


def bits(out: Path) -> dict[str, bytes]:
    """What every run below `out` has computed, by folder and file."""
    found = [folder / name for folder in out.iterdir() for name in BITS]
    return {f"{path.parent.name}/{path.name}": path.read_bytes() for path in found if path.is_file()}


def met(out: Path, name: str, accept: Callable[[int], bool] = lambda process: True) -> int:
    """Wait until a run whose folder begins with `name` is between two epochs; return the process that computes it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for metrics in out.glob(f"{name}*/metrics.jsonl"):
            process = process_of(out / "logs" / f"{metrics.parent.name}.log")
            if accept(process) and not (metrics.parent / "done").exists():
                return process
        time.sleep(0.005)
    raise AssertionError(f"no {name} was met within {PATIENCE} s")


@contextmanager
def meanwhile(*deeds: Callable[[], None]) -> Iterator[None]:
    """Do each of the deeds in a thread while the block runs; all must have succeeded."""
    with ThreadPoolExecutor(len(deeds)) as threads:
        begun = [threads.submit(deed) for deed in deeds]
        yield
        for deed in begun:
            deed.result()


def process_of(log: Path) -> int:
    """The process of the last attempt that a log tells of."""
    return int(PROCESS.findall(log.read_text())[-1])
