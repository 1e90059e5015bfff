"""The checkpoint of one training: where it stands on disk, so that a killed training continues.

`last.pt` holds everything at the end of an epoch (weights, optimiser, history); `best.pt` the weights of the best
epoch. `metrics.jsonl` has one line per epoch. They are written in the order best, metrics, last: a training killed in
between repeats the epoch and, being deterministic, writes the same again.
"""

from __future__ import annotations

import contextlib
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from retinabench.core.errors import QUIET, InputError, Progress, check
from retinabench.core.files import atomic_write, write_bytes
from retinabench.data.loader import is_out_of_memory
from retinabench.models.weight_files import load_archive

LAST, BEST = "last.pt", "best.pt"
TrainingState = dict[str, Any]  # What a checkpoint holds: tensors, numbers and text by name, and dictionaries of them.
AGAIN = "Delete it; the training then starts again."


def save_tensors(path: Path, content: Any) -> None:
    """Write tensors, numbers and text, nested in dicts and lists, atomically, one tensor at a time."""
    with atomic_write(path, checked=True) as handle:
        try:
            with _ctrl_c_deferred():
                torch.save(content, handle)
        except RuntimeError as error:  # PyTorch closes its archive after a failed write, and that fails too
            failed: BaseException | None = error
            while isinstance(failed, RuntimeError):  # down to what failed first, such as a full disk
                failed = failed.__context__
            raise failed or error from None


@contextlib.contextmanager
def _ctrl_c_deferred() -> Iterator[None]:
    """Raise Ctrl-C at the end of the block.

    In the middle of `torch.save` it may leave an archive that is completed after its file was closed, which aborts the
    process, or be swallowed by the bare ``except`` of ``copyreg._slotnames``.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or handler is None:
        yield  # Python raises it in the main thread only, and cannot restore a handler that it did not set
        return
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if heard:
            signal.raise_signal(signal.SIGINT)


def load_tensors(path: Path, *, mapped: bool = False) -> Any:
    """Return what `save_tensors` wrote; no code in the file is ever run."""
    check(path, hint=AGAIN)
    try:
        return load_archive(path, mapped=mapped)
    except (FileNotFoundError, MemoryError):
        raise
    except Exception as error:  # torch raises half a dozen kinds for a damaged file
        why = str(error) if type(error) is ValueError else type(error).__name__
        raise InputError(f"is not a checkpoint ({why})", file=path, hint=AGAIN) from None


@contextlib.contextmanager
def taking_over(path: Path, hint: str = AGAIN) -> Iterator[None]:
    """Turn what a state of another network raises while it is taken over into one line that names its file."""
    try:
        yield
    except Exception as error:
        if isinstance(error, InputError | MemoryError) or is_out_of_memory(error):
            raise
        why = " ".join(str(error).split())[:120]
        raise InputError(f"holds the tensors of another network ({why})", file=path, hint=hint) from None


@dataclass
class Checkpoint:
    """The state of one training, kept in `folder`, or in memory where there is none (tests, notebooks).

    Of several processes that train together only the first one `writes`; the others read the folder to continue.
    interval: seconds between checkpoints, 0 for one per epoch: an epoch of a small network is shorter than a write. The first
        epoch has one.
    counts: numbers that the caller keeps with every checkpoint; a resumed training counts on.
    saved: called with the folder after every checkpoint.
    """

    folder: Path | None = None
    progress: Progress = QUIET
    title: str = "Training"
    history: list[dict[str, float]] = field(default_factory=list)
    writes: bool = True
    interval: float = 0.0
    counts: dict[str, float] = field(default_factory=dict)
    saved: Callable[[Path], None] = lambda folder: None
    _saved: float = field(default=-math.inf, repr=False)
    _best: dict[str, Tensor] | None = None

    def resume(self) -> TrainingState | None:
        """Return what the last `checkpoint` saved, or None at the start."""
        if self.folder is None or not (self.folder / LAST).is_file():
            return None
        saved: TrainingState = load_tensors(self.folder / LAST)
        with self.taking_over():
            self.history = [dict(line) for line in json.loads(saved["history"])]
            self.counts.update({str(name): float(value) for name, value in saved.get("counts", {}).items()})
        return saved

    def taking_over(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which what `resume` returned is taken over: a state that does not fit is refused."""
        return contextlib.nullcontext() if self.folder is None else taking_over(self.folder / LAST)

    def keep_best(self, weights: dict[str, Tensor]) -> None:
        self._best = weights

    def restore_best(self, restore: Callable[[dict[str, Tensor]], object]) -> None:
        if self._best is not None:
            restore(self._best)
            return
        assert self.folder is not None
        path = self.folder / BEST
        if not path.is_file():
            hint = f"Delete {LAST}; the training then starts again."
            raise InputError(f"is missing, and {LAST} says that it was written", file=path, hint=hint)
        state = load_tensors(path)
        with taking_over(path):
            restore(state)

    def due(self) -> bool:
        return time.monotonic() - self._saved >= self.interval

    def save(self, state: TrainingState) -> None:
        """Save `state` with the history so far; the epochs after it are repeated by a training that is killed."""
        self._saved = time.monotonic()
        if self.folder is not None and self.writes:
            if self._best is not None:
                save_tensors(self.folder / BEST, self._best)
                self._best = None
            lines = "".join(json.dumps(line) + "\n" for line in self.history)
            write_bytes(self.folder / "metrics.jsonl", lines.encode(), checked=True)
            beside = {"history": json.dumps(self.history), "counts": dict(self.counts)}
            save_tensors(self.folder / LAST, {**state, **beside})
            self.saved(self.folder)
