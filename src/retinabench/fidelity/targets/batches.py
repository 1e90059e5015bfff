"""A target's training points as the batches of the one training loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from retinabench.core.random_streams import numpy_generator
from retinabench.data.loader import Batches, chunks
from retinabench.fidelity.targets.data import Data, labels, standardised


class PointBatches(Batches):
    """All training points, none held out: a posterior is that of all its data.

    Inputs are standardised float32 (or tokens), labels int64 classes or float32 targets; both live on the device.
    """

    def __init__(self, data: Data, batch_size: int, seed: int, device: torch.device) -> None:
        rows = np.arange(len(data.train))
        inputs, _ = standardised(data)
        values: dict[str, Any] = {
            "data": None, "train": rows, "validation": rows[:0], "batch_size": batch_size, "seed": seed,
            "augment": "none", "standardise": False, "device": device, "workers": 0,
            "inputs": torch.from_numpy(inputs).to(device), "labels": torch.from_numpy(labels(data)[0]).to(device),
        }  # fmt: skip
        for name, value in values.items():
            object.__setattr__(self, name, value)  # the dataclass is frozen

    inputs: Tensor
    labels: Tensor

    def epoch(self, number: int, rank: int = 0, ranks: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the shuffled batches of one epoch; a process gets its share of each."""
        order = numpy_generator(self.seed, "order", number).permutation(self.train)
        for chunk in chunks(order, self.batch_size):
            yield self._pair(np.array_split(chunk, ranks)[rank])

    def held_out(self, batch_size: int = 256) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield nothing."""
        return iter(())

    def rows(self, rows: NDArray[np.intp], batch_size: int = 256) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield any training rows in order."""
        return (self._pair(chunk) for chunk in chunks(rows, batch_size))

    def _pair(self, rows: NDArray[np.intp]) -> tuple[Tensor, Tensor]:
        index = torch.from_numpy(rows).to(self.device)
        return self.inputs[index], self.labels[index]
