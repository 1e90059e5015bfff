"""How many images are computed at a time where the memory of a device is short.

On a GPU the memory is measured before a training, its first validation and its prediction (`probe`), and where it runs out all the
same, the work is done again with half as many images at a time (`with_less`). A limit changes no batch of the training: a larger batch is cut into parts whose
gradients are added up, as `optimizer.accumulate` does by choice. On a CPU nothing is probed, and nothing is cut before memory
runs out.
"""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeVar, get_args

import torch

from retinabench.core.errors import InputError, OutOfMemoryError
from retinabench.core.files import write_json
from retinabench.core.progress import Progress
from retinabench.core.results import JsonObject

Result = TypeVar("Result")
FILE = "memory.json"
USABLE = 0.9  # share of the free memory that a probe plans with: fragments and work buffers take the rest
Work = Literal["training", "validation", "prediction"]


@dataclass
class BatchLimits:
    """The most images of one forward pass, by what it is for; None is no limit."""

    training: int | None = None
    validation: int | None = None
    prediction: int | None = None
    probed: list[Work] = field(default_factory=list)
    history: list[str] = field(default_factory=list)
    changed: Callable[[str], None] = lambda line: None

    def of(self, work: Work, size: int) -> int:
        """Return `size`, or the limit of that work where it is smaller."""
        limit: int | None = getattr(self, work)
        return size if limit is None else min(size, limit)

    def set(self, work: Work, limit: int, why: str) -> None:
        """Set a limit, and record why."""
        setattr(self, work, limit)
        unchanged = "; the batch size of a step is unchanged" if work == "training" else ""
        line = f"{why}: {work} now takes {_count(limit)} at a time{unchanged}"
        self.history.append(line)
        self.changed(line)


def keep_limits(limits: BatchLimits, folder: Path, progress: Progress, *, writes: bool) -> None:
    """Continue with the limits that a folder holds, and keep every change there."""
    path = folder / FILE

    def write() -> None:
        if writes:
            write_json(path, {name: getattr(limits, name) for name in (*get_args(Work), "probed", "history")})

    def changed(line: str) -> None:
        write()
        if writes:
            progress.say(f"note: {line}")

    if path.is_file():
        for name, value in _read(path).items():
            setattr(limits, name, value)
    limits.changed = changed


def _read(path: Path) -> JsonObject:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        limits = {name: found[name] for name in get_args(Work)}
        if any(value is not None and (type(value) is not int or value < 1) for value in limits.values()):
            raise ValueError("a limit is no positive number")
        probed = (
            ["training"]
            if found["probed"] is True
            else [w for w in get_args(Work) if w in (found["probed"] or ())]
        )
        return {**limits, "probed": probed, "history": list(found["history"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"is damaged ({error})", file=path, hint="Delete it; the limits are then found again."
        ) from None


def _count(images: int) -> str:
    return f"{images} {'image' if images == 1 else 'images'}"


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an exception says that memory ran out; on a CPU PyTorch says so in the message alone."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def release(device: torch.device) -> None:
    """Give back what a failed pass still holds."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def with_less(
    attempt: Callable[[int], Result],
    begin: Callable[[], None],
    limits: BatchLimits,
    work: Work,
    size: int,
    device: torch.device,
    least: int = 1,
) -> Result:
    """Return what `attempt` returns, with half as many images at a time as often as memory runs out."""
    while True:
        most = limits.of(work, size)
        try:
            return attempt(most)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
        # The exception, whose frames hold the tensors of the pass, is gone by now.
        if most <= least:
            raise out_of_memory(f"{work} with {_count(most)} at a time", device)
        release(device)
        limits.set(work, max(least, most // 2), f"out of memory with {most} images on {device}")
        begin()


def out_of_memory(what: str, device: torch.device) -> OutOfMemoryError:
    """Return the error of work that does not fit and is not cut any further."""
    hint = "or choose a smaller network (model.width) or smaller images (prepare --size)"
    if device.type == "cuda":
        hint += ", or set optimizer.precision=bfloat16"
    return OutOfMemoryError(
        f"{device} ran out of memory: {what} does not fit. End other programs that use its memory, {hint}. Finished epochs and runs are kept."
    )


class Meter(Protocol):
    """Measures the memory of a device."""

    def free(self) -> int:
        """Return the bytes that are free or can be freed."""

    def peak(self, work: Callable[[], None]) -> int:
        """Do the work; return the most bytes that it held beside those that were held before."""


class CudaMeter:
    """The memory of a CUDA device, as PyTorch's allocator counts it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def free(self) -> int:
        """Return the bytes that are free or can be freed."""
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self._device)[0])

    def peak(self, work: Callable[[], None]) -> int:
        """Do the work; return the most bytes that it held beside those that were held before."""
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        work()
        torch.cuda.synchronize(self._device)
        return int(torch.cuda.max_memory_allocated(self._device) - before)


def meter_of(device: torch.device) -> Meter | None:
    """Return what measures the memory of a device; None on a CPU, where nothing is probed."""
    return CudaMeter(device) if device.type == "cuda" else None


def probe(work: Callable[[int], None], size: int, meter: Meter, least: int = 1, reserved: int = 0) -> int:
    """Return how many images at a time fit the memory, at most `size`.

    The number of images is doubled while the next pass is expected to fit, by a line through the last two measurements; that
    line then gives the number that fills the free memory.
    """
    budget = USABLE * meter.free() - reserved
    least = min(least, size)
    images, slope = least, 0.0
    try:
        peak = meter.peak(lambda: work(images))
        while images < size and peak + slope * images <= budget:
            twice, before = min(2 * images, size), peak
            peak = meter.peak(lambda count=twice: work(count))  # type: ignore[misc]
            slope, images = max(0.0, (peak - before) / (twice - images)), twice
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return images
    if slope and peak + slope * (size - images) > budget:
        images += math.floor((budget - peak) / slope)
    return max(least, min(images, size))
