"""Random streams: each has a name and depends on the seed of the run and that name alone."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def derive(seed: int, *name: str | int) -> int:
    """Return a 63-bit seed for the stream `name` of `seed`: independent streams for different names."""
    digest = hashlib.sha256("/".join(map(str, (seed, *name))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def numpy_generator(seed: int, *name: str | int) -> np.random.Generator:
    """Return NumPy's generator for the stream `name` of `seed`."""
    return np.random.default_rng(derive(seed, *name))


def torch_generator(device: torch.device | str, seed: int, *name: str | int) -> torch.Generator:
    """Return a PyTorch generator on `device` for the stream `name` of `seed`.

    Args:
        device: Where the generator draws.
        seed: Seed of the run.
        *name: Parts of the stream's name, such as `"augment", epoch`.
    """
    import torch

    return torch.Generator(device).manual_seed(derive(seed, *name))
