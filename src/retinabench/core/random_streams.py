"""Random streams: each has a name and depends on nothing but the seed of the run and that name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retinabench.core.seeds import derive, numpy_generator

if TYPE_CHECKING:
    import torch

__all__ = ["derive", "numpy_generator", "torch_generator"]


def torch_generator(device: torch.device | str, seed: int, *name: str | int) -> torch.Generator:
    """Return a PyTorch generator on `device` for the stream `name` of `seed`."""
    import torch

    return torch.Generator(device).manual_seed(derive(seed, *name))
