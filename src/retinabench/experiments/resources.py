"""Where a run is computed: device, precision, processes that read, progress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.subprocesses import cores
from retinabench.methods.training import distributed
from retinabench.models.acceleration import supports_bfloat16

READERS = 8  # processes that read for one GPU


@dataclass(frozen=True)
class Resources:
    """Where a run is computed, and where its progress is shown; none of it changes the run's hash.

    Several processes started by `torchrun` train one run together (`methods/training/distributed.py`).

    Args:
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        readers: Processes that read images ahead; 0 reads in this process. None: 0 on a CPU, up to `READERS` for a GPU.
        progress: Shows how far the work is.
    """

    device: str = "auto"
    readers: int | None = None
    progress: Progress = QUIET

    def torch_device(self) -> torch.device:
        """Choose the device; `auto` takes a GPU where there is one, under `torchrun` each process its own.

        Returns:
            The device.

        Raises:
            InputError: The device is unknown or absent.
        """
        name = self.device if self.device != "auto" else ("cuda" if torch.cuda.is_available() else "cpu")
        if name == "cuda" and distributed.expected():
            name = distributed.local_device()
        try:
            torch.empty(0, device=name)
            return torch.device(name)
        except (RuntimeError, AssertionError):
            raise InputError(f"no device '{name}' here", hint=_devices_here()) from None

    def reading(self) -> int:
        """Return the number of processes that read images ahead."""
        if self.readers is not None:
            return self.readers
        if self.torch_device().type != "cuda":
            return 0
        return min(READERS, cores() // max(1, torch.cuda.device_count()))

    def precision(self) -> Literal["bfloat16"] | None:
        """Return the precision of runs whose settings name none: bfloat16 on a GPU that has it, else None."""
        return "bfloat16" if supports_bfloat16(self.torch_device()) else None


def _devices_here() -> str:
    count = torch.cuda.device_count()
    cards = f"this machine has {count} {'GPU' if count == 1 else 'GPUs'}"
    if count and distributed.expected():
        return f"Give torchrun --nproc-per-node {count}: {cards}."
    return f"Valid: auto, cpu{', cuda, cuda:N' if count else ''}; {cards}."


DEFAULT_RESOURCES = Resources()
