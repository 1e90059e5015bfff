"""Batches: rows of a data set as tensors, in an order that depends on seed and epoch alone; augmentation, and the memory of a device.

`flip` mirrors. `affine` adds the rotation, shift and zoom of Leibig et al. 2017, which the diabetic-retinopathy
benchmark of Filos et al. 2019 took over.

On a GPU the memory is measured before a training, its first validation and its prediction (`probe`), and where it runs out all the
same, the work is done again with half as many images at a time (`with_less`). A limit changes no batch of the training: a larger batch is cut into parts whose
gradients are added up, as `optimizer.accumulate` does by choice. On a CPU nothing is probed, and nothing is cut before memory
runs out.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from retinabench.core.errors import OutOfMemoryError, Progress
from retinabench.core.files import write_json
from retinabench.core.random_streams import numpy_generator, torch_generator
from retinabench.core.results import JsonObject
from retinabench.core.settings import read_checked
from retinabench.data.dataset import Rows
from retinabench.data.prepared import Prepared

ROTATION = math.pi  # to either side: every angle
SHIFT = 25 / 512  # of the side, along each axis
ZOOM = 0.10  # to either side of 1, each axis on its own
Augment = Callable[[Tensor], Tensor]


def unchanged(images: Tensor) -> Tensor:
    return images


def augmentation(
    kind: str, count: int, device: torch.device, seed: int, epoch: int, rank: int = 0
) -> tuple[Augment, Augment]:
    """Return the augmentations of one epoch: of the stored bytes, and of the network inputs.

    The first acts on the stored bytes (B, 3, H, W), a quarter of the traffic; the second on the network's inputs. For
    `affine` the k-th image of the epoch gets the k-th row of numbers drawn on the CPU: the same view on every device,
    however the epoch is cut into batches.
    """
    own = (rank,) * (rank > 0)
    if kind == "none":
        return unchanged, unchanged
    if kind == "flip":
        noise = torch_generator(device, seed, "augment", epoch, *own)
        return lambda images: flip(images, noise), unchanged
    uniform = torch.rand((count, 7), generator=torch_generator("cpu", seed, "augment", epoch, *own))
    matrices, seen = affine_matrices(uniform).to(device), 0

    def view(images: Tensor) -> Tensor:
        nonlocal seen
        seen += len(images)
        return affine(images, matrices[seen - len(images) : seen])

    return unchanged, view


def flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image (B, 3, H, W) on each axis with probability 1/2: left and right eyes mirror each other, and retinopathy has no upright, so that the label stays true."""
    for axis in (2, 3):
        chosen = torch.rand(len(images), generator=generator, device=images.device) < 0.5
        images = torch.where(chosen[:, None, None, None], images.flip(axis), images)
    return images


def affine_matrices(uniform: Tensor) -> Tensor:
    """Turn uniform numbers (B, 7) in [0, 1) into the matrices (B, 2, 3) of random views.

    A point p of the view shows the point R(θ) (Z F p + t) of the image, coordinates from -1 to 1: mirrored (F, each
    axis with probability 1/2), zoomed (Z, each axis in 1 ± 0.1), shifted (t, each axis by ± 25/512 of the side), then
    rotated about the middle (θ in ± π). This is the order of the Keras generator that the 2019 code configures; its
    centre is one pixel off the middle, here it is the middle.
    """
    signed = 2 * uniform - 1
    angle = ROTATION * signed[:, 0]
    shift = 2 * SHIFT * signed[:, 1:3, None]  # a side is 2 long in these coordinates
    zoom = 1 + ZOOM * signed[:, 3:5]
    mirror = torch.where(uniform[:, 5:7] < 0.5, -1.0, 1.0)
    cos, sin = torch.cos(angle), torch.sin(angle)
    rotation = torch.stack([torch.stack([cos, -sin], dim=1), torch.stack([sin, cos], dim=1)], dim=1)
    return rotation @ torch.cat([torch.diag_embed(zoom * mirror), shift], dim=2)


def affine(images: Tensor, matrices: Tensor) -> Tensor:
    """View each image (B, 3, H, W), H = W, through its matrix (B, 2, 3): bilinear, 0 outside the image.

    As in the 2019 code, 0 is that of the network's inputs: black in the unit interval, the mean colour of the
    training images where channels are standardised.
    """
    grid = affine_grid(matrices, list(images.shape), align_corners=False).to(images.dtype)
    views = grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return views.contiguous(memory_format=torch.channels_last)


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
        setattr(self, work, limit)
        unchanged = "; the batch size of a step is unchanged" if work == "training" else ""
        line = f"{why}: {work} now takes {_count(limit)} at a time{unchanged}"
        self.history.append(line)
        self.changed(line)


def keep_limits(limits: BatchLimits, folder: Path, progress: Progress, *, writes: bool) -> None:
    """Continue with the limits that a folder holds, and keep every change there."""
    path = folder / FILE

    def changed(line: str) -> None:
        if writes:
            write_json(path, {name: getattr(limits, name) for name in (*get_args(Work), "probed", "history")})
            progress.say(f"note: {line}")

    known = read_checked(path, _limits, "Delete it; the limits are then found again.")
    for name, value in (known or {}).items():
        setattr(limits, name, value)
    limits.changed = changed


def _limits(content: JsonObject) -> JsonObject:
    limits = {name: content[name] for name in get_args(Work)}
    if any(value is not None and (type(value) is not int or value < 1) for value in limits.values()):
        raise ValueError("limits must be positive")
    probed = content["probed"] or ()  # True: of a version that probed the training alone
    names = ["training"] if probed is True else [name for name in get_args(Work) if name in probed]
    return {**limits, "probed": names, "history": list(content["history"])}


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


class Meter:
    """The memory of a CUDA device, as PyTorch's allocator counts it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def free(self) -> int:
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self._device)[0])

    def peak(self, work: Callable[[], None]) -> int:
        """Do the work; return the most bytes that it held in addition to those held before."""
        torch.cuda.synchronize(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        work()
        torch.cuda.synchronize(self._device)
        return int(torch.cuda.max_memory_allocated(self._device) - before)


def meter_of(device: torch.device) -> Meter | None:
    """Return what measures the memory of a device; None on a CPU, where nothing is probed."""
    return Meter(device) if device.type == "cuda" else None


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


STATISTICS_IMAGES = 512
PREFETCH = 4  # batches that each process reads ahead


class Source(Protocol):
    """Inputs and targets that can be loaded onto a device, batch by batch."""

    @property
    def device(self) -> torch.device: ...

    @property
    def targets(self) -> NDArray[Any]: ...

    def load(self, chunks: Sequence[Rows], stored_view: Augment = unchanged) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs (B, ...) and targets (B,) of each chunk of rows."""


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Inputs (N, ...), as networks take them, and targets (N,), both on the device already."""

    inputs: Tensor
    labels: Tensor

    @property
    def device(self) -> torch.device:
        return self.inputs.device

    @property
    def targets(self) -> NDArray[Any]:
        return np.asarray(self.labels.cpu())

    def load(self, chunks: Sequence[Rows], stored_view: Augment = unchanged) -> Iterator[tuple[Tensor, Tensor]]:
        for rows in chunks:
            index = torch.from_numpy(rows).to(self.device)
            yield stored_view(self.inputs[index]), self.labels[index]


@dataclass(frozen=True, eq=False)
class ImageSource:
    """Images and labels of a prepared folder; images travel as uint8 and become float32 (B, 3, H, W) on the device, in [0, 1] or standardised; labels are float32 (B,)."""

    data: Prepared
    device: torch.device
    standardise_over: Rows | None = None
    workers: int = 0
    scale: tuple[Sequence[float], Sequence[float]] | None = None

    @cached_property
    def targets(self) -> NDArray[np.float32]:
        """(N,) labels, by the cut of the task."""
        return self.data.label.astype(np.float32)

    @cached_property
    def statistics(self) -> tuple[Tensor, Tensor] | None:
        """Mean and std (1, 3, 1, 1) of the channels in [0, 1]: fixed ones, or those over evenly spaced images."""
        if self.scale is not None:
            return self._on_device(*self.scale)
        if self.standardise_over is None:
            return None
        rows = self.standardise_over[:: -(-len(self.standardise_over) // STATISTICS_IMAGES)]
        return self._on_device(*channel_statistics(self.data, rows))

    def _on_device(self, mean: Any, std: Any) -> tuple[Tensor, Tensor]:
        on_device = [torch.tensor(v, dtype=torch.float32, device=self.device).reshape(1, 3, 1, 1) for v in (mean, std)]
        return on_device[0], on_device[1]

    def stored(self, chunks: Sequence[Rows]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield chunks of rows as they are stored, in host memory: uint8 images (B, H, W, 3), labels (B,)."""
        if not self.workers:
            yield from self._reader(chunks)
            return
        kept = self._kept
        if kept.busy:  # by a pass over other rows, which this one interrupts
            yield from self._reader(chunks)
            return
        kept.busy, kept.chunks[:] = True, list(chunks)
        try:
            yield from kept.reader
        finally:
            kept.busy = False

    @cached_property
    def _kept(self) -> _Kept:
        chunks: list[Rows] = []
        return _Kept(chunks, self._reader(chunks, persistent=True))

    def _reader(self, chunks: Sequence[Rows], *, persistent: bool = False) -> DataLoader[tuple[Tensor, Tensor]]:
        return DataLoader(
            _StoredImages(self.data),
            batch_size=None,
            sampler=chunks,
            num_workers=self.workers,
            # The loader would otherwise seed its workers from the global generator.
            generator=torch.Generator(),
            multiprocessing_context="spawn" if self.workers else None,
            prefetch_factor=PREFETCH if self.workers else None,
            persistent_workers=persistent,
            pin_memory=self.device.type == "cuda",
        )

    def load(self, chunks: Sequence[Rows], stored_view: Augment = unchanged) -> Iterator[tuple[Tensor, Tensor]]:
        for stored, labels in self.stored(chunks):
            stored = stored.to(self.device, non_blocking=True)
            # The permuted images are in channels-last layout already, the faster one on both kinds of device.
            images = stored_view(stored.permute(0, 3, 1, 2)).to(torch.float32).div_(255)
            if self.statistics is not None:
                mean, std = self.statistics
                images = images.sub_(mean).div_(std)
            yield images, labels.to(self.device, non_blocking=True)


@dataclass
class _Kept:
    """A reader whose processes live as long as its source, the rows that it reads next, and whether it is reading."""

    chunks: list[Rows]
    reader: DataLoader[tuple[Tensor, Tensor]]
    busy: bool = False


@dataclass(frozen=True, eq=False)
class _StoredImages(TorchDataset[tuple[Tensor, Tensor]]):
    """A map from a chunk of rows to uint8 images (B, H, W, 3) and float labels (B,)."""

    data: Prepared

    def __getitem__(self, rows: Rows) -> tuple[Tensor, Tensor]:
        labels = self.data.label[rows].astype(np.float32)
        return torch.from_numpy(self.data.images(rows)), torch.from_numpy(labels)


@dataclass(frozen=True, eq=False)
class Batches:
    """Training and validation rows of a source, in batches on its device: what the training loop reads.

    whole: where the log-likelihood of all training rows has a faster form than the network's, returns it, by the weights of K networks,
    (K, P) -> values (K,) and gradients (K, P), and the names of its stream of randomness.
    """

    source: Source
    train: Rows
    validation: Rows
    batch_size: int
    seed: int
    augment: str = "none"
    limits: BatchLimits = field(default_factory=BatchLimits)
    whole: Callable[[], tuple[Callable[[Tensor], tuple[Tensor, Tensor]], tuple[str, ...]]] | None = None

    @property
    def device(self) -> torch.device:
        return self.source.device

    @cached_property
    def positive_share(self) -> float:
        return float(np.asarray(self.source.targets)[self.train].mean())

    @cached_property
    def steps(self) -> int:
        """Batches per epoch; the last, smaller one counts."""
        return len(chunks(self.train, self.batch_size))

    def epoch(self, number: int, rank: int = 0, ranks: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        rows = numpy_generator(self.seed, "order", number).permutation(self.train)
        shares = chunks(rows, self.batch_size)
        if ranks > 1:
            shares = [np.array_split(chunk, ranks)[rank] for chunk in shares]
        images = sum(len(share) for share in shares)
        stored_view, view = augmentation(self.augment, images, self.device, self.seed, number, rank)
        for inputs, targets in self.source.load(shares, stored_view):
            yield view(inputs), targets

    def cut(self, rows: Rows, batch_size: int = 256, work: Work = "prediction") -> list[Rows]:
        """Cut any rows into batches that fit the memory, in order."""
        return chunks(rows, self.limits.of(work, batch_size)) if len(rows) else []

    def rows(self, rows: Rows, batch_size: int = 256) -> Iterator[tuple[Tensor, Tensor]]:
        return self.source.load(self.cut(rows, batch_size))

    def targets(self, rows: Rows) -> Tensor:
        """Return the targets (len(rows),) of the given rows, on the device."""
        return torch.from_numpy(self.source.targets[rows]).to(self.device)


def channel_statistics(data: Prepared, rows: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and std (3,) of the channels in [0, 1] over the images of some rows."""
    counts = np.zeros((3, 256))  # a histogram is exact and needs no copy in floating point
    for some in chunks(rows, 32):
        images = data.images(some)
        counts += [np.bincount(images[..., channel].ravel(), minlength=256) for channel in range(3)]
    share, value = counts / counts.sum(axis=1, keepdims=True), np.arange(256) / 255
    mean = share @ value
    return mean, np.sqrt(np.maximum(share @ value**2 - mean**2, 1e-12))


def array_batches(
    inputs: NDArray[Any], targets: NDArray[Any], batch_size: int, seed: int, device: torch.device
) -> Batches:
    """Return the batches of arrays of which all rows train and none is held out; `inputs` (N, ...), `targets` (N,)."""
    rows = np.arange(len(targets))
    source = ArraySource(torch.from_numpy(inputs).to(device), torch.from_numpy(targets).to(device))
    return Batches(source, rows, rows[:0], batch_size, seed)


def chunks(rows: Rows, size: int) -> list[Rows]:
    """Cut rows into batches; a single one left over joins its neighbour, since batch norm needs two."""
    cuts = list(range(size, len(rows), size))
    if cuts and len(rows) - cuts[-1] == 1:
        cuts.pop()
    return np.split(rows, cuts)
