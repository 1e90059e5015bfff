"""Batches: rows of a prepared data set as tensors, in an order that depends on seed and epoch alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from retinabench.core.random_streams import numpy_generator
from retinabench.data.augment import Augment, augmentation, unchanged
from retinabench.data.prepared import Prepared

STATISTICS_PICTURES = 512


@dataclass(frozen=True, eq=False)
class Batches:
    """The training and validation rows of a task, in batches on a device.

    Pictures travel as uint8 and become float32 (B, 3, H, W) on the device: in [0, 1], or with `standardise` each channel
    less its mean and divided by its deviation over training pictures. Labels are float32 (B,). augment: none, flip or
    affine (`data/augment.py`). `workers` processes read ahead where the disk is slow (0: none).
    """

    data: Prepared
    train: NDArray[np.intp]
    validation: NDArray[np.intp]
    batch_size: int
    seed: int
    augment: str
    standardise: bool
    device: torch.device
    workers: int = 0

    @property
    def steps(self) -> int:
        """Batches per epoch; the last, smaller one counts."""
        return len(chunks(self.train, self.batch_size))

    @cached_property
    def statistics(self) -> tuple[Tensor, ...]:
        """Mean and deviation (1, 3, 1, 1) of the channels in [0, 1], over evenly spaced training pictures."""
        rows = self.train[:: -(-len(self.train) // STATISTICS_PICTURES)]
        counts = np.zeros((3, 256))  # a histogram is exact and needs no copy in floating point
        for chunk in chunks(rows, 32):
            pictures = self.data.images(chunk)
            counts += [np.bincount(pictures[..., channel].ravel(), minlength=256) for channel in range(3)]
        share, value = counts / counts.sum(axis=1, keepdims=True), np.arange(256) / 255
        mean = share @ value
        deviation = np.sqrt(share @ value**2 - mean**2).clip(min=1e-6)
        return tuple(
            torch.tensor(v, dtype=torch.float32, device=self.device).reshape(1, 3, 1, 1)
            for v in (mean, deviation)
        )

    def epoch(self, number: int, rank: int = 0, ranks: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the shuffled batches of one epoch: pictures (B, 3, H, W), labels (B,).

        The process `rank` of `ranks` gets its share of every batch, and draws views of its own.
        """
        rows = numpy_generator(self.seed, "order", number).permutation(self.train)
        shares = [np.array_split(chunk, ranks)[rank] for chunk in chunks(rows, self.batch_size)]
        pictures = sum(len(share) for share in shares)
        mirror, view = augmentation(self.augment, pictures, self.device, self.seed, number, rank)
        for images, labels in self._load(shares, mirror):
            yield view(images), labels

    def held_out(self, batch_size: int = 256) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the validation batches in order."""
        return self._load(chunks(self.validation, batch_size))

    def rows(self, rows: NDArray[np.intp], batch_size: int = 256) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield any rows in order."""
        return self._load(chunks(rows, batch_size))

    def stored(self, rows: NDArray[np.intp], batch_size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield any rows in order as they are stored, in host memory: uint8 pictures (B, H, W, 3), labels (B,)."""
        return self._read(chunks(rows, batch_size))

    def _read(self, chunks: list[NDArray[np.intp]]) -> Iterator[tuple[Tensor, Tensor]]:
        loader: DataLoader[tuple[Tensor, Tensor]] = DataLoader(
            _Pictures(self.data),
            batch_size=None,
            sampler=chunks,
            num_workers=self.workers,
            # The loader would otherwise draw its workers' seed from the global generator.
            generator=torch.Generator(),
            multiprocessing_context="spawn" if self.workers else None,
            pin_memory=self.device.type == "cuda",
        )
        yield from loader

    def _load(
        self, chunks: list[NDArray[np.intp]], mirror: Augment = unchanged
    ) -> Iterator[tuple[Tensor, Tensor]]:
        for pictures, labels in self._read(chunks):
            pictures = pictures.to(self.device, non_blocking=True)
            # The permuted pictures are in channels-last layout as they are, the faster one on both kinds of device.
            images = mirror(pictures.permute(0, 3, 1, 2)).to(torch.float32).div_(255)
            if self.standardise:
                mean, deviation = self.statistics
                images = images.sub_(mean).div_(deviation)
            yield images, labels.to(self.device, non_blocking=True)


@dataclass(frozen=True, eq=False)
class _Pictures(Dataset[tuple[Tensor, Tensor]]):
    """A map from a chunk of rows to uint8 pictures (B, H, W, 3) and float labels (B,)."""

    data: Prepared

    def __getitem__(self, rows: NDArray[np.intp]) -> tuple[Tensor, Tensor]:
        labels = self.data.label[rows].astype(np.float32)
        return torch.from_numpy(self.data.images(rows)), torch.from_numpy(labels)


def chunks(rows: NDArray[np.intp], size: int) -> list[NDArray[np.intp]]:
    """Cut rows into batches; a single one left over joins its neighbour, since batch norm needs two."""
    cuts = list(range(size, len(rows), size))
    if cuts and len(rows) - cuts[-1] == 1:
        cuts.pop()
    return np.split(rows, cuts)
