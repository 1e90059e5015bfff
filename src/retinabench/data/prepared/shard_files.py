"""The files of the pixels of a prepared folder: written, mapped into memory, and hashed."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.core.files import atomic_write
from retinabench.data.records import Records


def mapped_shard(path: Path, size: int) -> NDArray[np.uint8]:
    """Map a shard into memory; one that is no array of images of that size is refused before it is used."""
    shard = memory_map(path)
    if shard.dtype != np.uint8 or shard.shape[1:] != (size, size, 3):
        raise ValueError(f"{path.name} holds {shard.dtype} of shape {shard.shape}")
    return shard


def memory_map(path: Path) -> NDArray[Any]:
    """Map an array into memory, as a plain one: indexing a `memmap` costs more than copying a small image."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # a damaged header that NumPy takes for one of Python 2
        try:
            return np.asarray(np.lib.format.open_memmap(path, mode="r"))
        except UserWarning as told:
            raise ValueError(f"{path.name}: {told}") from None


def fingerprint(records: Records, shards: Sequence[Path]) -> str:
    """Return the SHA-256 of the records and every pixel: two folders with one fingerprint hold the same data."""
    digest = hashlib.sha256(records.to_parquet())
    for path in shards:
        with open(path, "rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()


def write_shard(path: Path, images: Sequence[NDArray[np.uint8]] | NDArray[np.uint8]) -> None:
    """Write images (n, size, size, 3) atomically as one .npy shard."""
    shape = (len(images), *np.shape(images[0] if len(images) else images)[-3:])
    with atomic_write(path, checked=True) as handle:
        np.lib.format.write_array_header_1_0(handle, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for image in images:  # one by one, without a second copy of the shard in memory
            if image.shape != shape[1:] or image.dtype != np.uint8:
                raise ValueError(f"an image of shape {image.shape} in a shard of {shape[1:]}")
            handle.write(image.tobytes())
