"""Batches: rows of a data set as tensors, in an order that depends on seed and epoch alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from retinabench.core.random_streams import numpy_generator
from retinabench.data.augment import Augment, augmentation, unchanged
from retinabench.data.dataset import Rows
from retinabench.data.memory import BatchLimits, Work
from retinabench.data.prepared.folder import Prepared

STATISTICS_IMAGES = 512
PREFETCH = 4  # batches that each process reads ahead


class Source(Protocol):
    """Inputs and targets that can be loaded onto a device, batch by batch."""

    @property
    def device(self) -> torch.device: ...  # noqa: D102 - where `load` puts the tensors

    @property
    def targets(self) -> NDArray[Any]: ...  # noqa: D102 - (N,) targets of all rows, as `load` yields them

    def load(
        self, chunks: Sequence[Rows], stored_view: Augment = unchanged
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs (B, ...) and targets (B,) of each chunk of rows."""


@dataclass(frozen=True, eq=False)
class ArraySource:
    """Inputs (N, ...), as networks take them, and targets (N,), both on the device already."""

    inputs: Tensor
    labels: Tensor

    @property
    def device(self) -> torch.device:
        """The device of the inputs."""
        return self.inputs.device

    @property
    def targets(self) -> NDArray[Any]:
        """(N,) targets, on the host."""
        return np.asarray(self.labels.cpu())

    def load(
        self, chunks: Sequence[Rows], stored_view: Augment = unchanged
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield inputs (B, ...) and targets (B,) of each chunk of rows."""
        for rows in chunks:
            index = torch.from_numpy(rows).to(self.device)
            yield stored_view(self.inputs[index]), self.labels[index]


@dataclass(frozen=True, eq=False)
class ImageSource:
    """Images and labels of a prepared folder.

    Images travel as uint8 and become float32 (B, 3, H, W) on the device, in [0, 1] or with standardised channels.
    Labels are float32 (B,).
    """

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
        counts = np.zeros((3, 256))  # a histogram is exact and needs no copy in floating point
        for chunk in chunks(rows, 32):
            images = self.data.images(chunk)
            counts += [np.bincount(images[..., channel].ravel(), minlength=256) for channel in range(3)]
        share, value = counts / counts.sum(axis=1, keepdims=True), np.arange(256) / 255
        mean = share @ value
        std = np.sqrt(share @ value**2 - mean**2).clip(min=1e-6)
        return self._on_device(mean, std)

    def _on_device(self, mean: Any, std: Any) -> tuple[Tensor, Tensor]:
        on_device = [
            torch.tensor(v, dtype=torch.float32, device=self.device).reshape(1, 3, 1, 1) for v in (mean, std)
        ]
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

    def _reader(
        self, chunks: Sequence[Rows], *, persistent: bool = False
    ) -> DataLoader[tuple[Tensor, Tensor]]:
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

    def load(
        self, chunks: Sequence[Rows], stored_view: Augment = unchanged
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images (B, 3, H, W) and labels (B,) of each chunk of rows."""
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
    """Training and validation rows of a source, in batches on its device: what the training loop reads."""

    source: Source
    train: Rows
    validation: Rows
    batch_size: int
    seed: int
    augment: str = "none"
    limits: BatchLimits = field(default_factory=BatchLimits)

    @property
    def device(self) -> torch.device:
        """The device of the batches."""
        return self.source.device

    @cached_property
    def positive_share(self) -> float:
        """The share of label 1 among the training rows."""
        return float(np.asarray(self.source.targets)[self.train].mean())

    @property
    def steps(self) -> int:
        """Batches per epoch; the last, smaller one counts."""
        return len(chunks(self.train, self.batch_size))

    def epoch(self, number: int, rank: int = 0, ranks: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the shuffled batches of one epoch."""
        rows = numpy_generator(self.seed, "order", number).permutation(self.train)
        shares = [np.array_split(chunk, ranks)[rank] for chunk in chunks(rows, self.batch_size)]
        images = sum(len(share) for share in shares)
        stored_view, view = augmentation(self.augment, images, self.device, self.seed, number, rank)
        for inputs, targets in self.source.load(shares, stored_view):
            yield view(inputs), targets

    def cut(self, rows: Rows, batch_size: int = 256, work: Work = "prediction") -> list[Rows]:
        """Cut any rows into batches that fit the memory, in order."""
        return chunks(rows, self.limits.of(work, batch_size)) if len(rows) else []

    def rows(self, rows: Rows, batch_size: int = 256) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield any rows in order."""
        return self.source.load(self.cut(rows, batch_size))

    def targets(self, rows: Rows) -> Tensor:
        """Return the targets (len(rows),) of the given rows, on the device."""
        return torch.from_numpy(self.source.targets[rows]).to(self.device)


def array_batches(
    inputs: NDArray[Any], targets: NDArray[Any], batch_size: int, seed: int, device: torch.device
) -> Batches:
    """Return the batches of arrays of which all rows train and none is held out.

    Shapes: `inputs` (N, ...), `targets` (N,).
    """
    rows = np.arange(len(targets))
    source = ArraySource(torch.from_numpy(inputs).to(device), torch.from_numpy(targets).to(device))
    return Batches(source, rows, rows[:0], batch_size, seed)


def chunks(rows: Rows, size: int) -> list[Rows]:
    """Cut rows into batches; a single one left over joins its neighbour, since batch norm needs two."""
    cuts = list(range(size, len(rows), size))
    if cuts and len(rows) - cuts[-1] == 1:
        cuts.pop()
    return np.split(rows, cuts)
