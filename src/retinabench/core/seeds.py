"""Seeds of random streams, and NumPy's generators for them; for modules that do without PyTorch."""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, *name: str | int) -> int:
    """Return a 63-bit seed for the stream `name` of `seed`: independent streams for different names."""
    digest = hashlib.sha256("/".join(map(str, (seed, *name))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def numpy_generator(seed: int, *name: str | int) -> np.random.Generator:
    """Return NumPy's generator for the stream `name` of `seed`."""
    return np.random.default_rng(derive(seed, *name))
