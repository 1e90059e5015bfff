"""CIFAR-10, and four kinds of corruption from CIFAR-10-C, as the competition scored them: 5 x 10,000 test pictures.

From the *binary* version (`cifar-10-batches-bin`: data_batch_1.bin … test_batch.bin), not the Python one, whose files
are pickles; and from CIFAR-10-C's `gaussian_noise.npy` and so on, 50,000 pictures by strength, in a folder `CIFAR-10-C`
beside it. All 50,000 training pictures are the data. The competition's reference may be that of 40,960 of them.

Krizhevsky 2009; Hendrycks & Dietterich 2019, https://zenodo.org/records/2535967.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.fidelity.targets.points import Points

PICTURE = 3 * 32 * 32
PER_FILE = 10_000
CORRUPTED = (("gaussian_noise", 2), ("brightness", 3), ("pixelate", 4), ("zoom_blur", 5))
CURE = (
    "Name by --data a folder with cifar-10-batches-bin/ (https://www.cs.toronto.edu/~kriz/cifar.html, binary version) "
    "and CIFAR-10-C/ (https://zenodo.org/records/2535967)."
)


def load(source: Path | None) -> tuple[Points, Points]:
    """Read both collections below `source`.

    Raises `InputError` that names the file where one is missing, or of another size or kind.
    """
    if source is None:
        raise InputError("the data of 'cifar10' do not come with the package", hint=CURE)
    folder = source / "cifar-10-batches-bin"
    parts = [_binary(folder / f"data_batch_{k}.bin") for k in range(1, 6)]
    pictures, classes = _binary(folder / "test_batch.bin")
    tests = [
        pictures,
        *(_corrupted(source / "CIFAR-10-C" / f"{kind}.npy", k, pictures) for kind, k in CORRUPTED),
    ]
    groups = ["clean", *(f"corrupted-{kind}-{strength}" for kind, strength in CORRUPTED)]
    train = np.concatenate([classes for _, classes in parts])
    return (
        Points(np.concatenate([pictures for pictures, _ in parts]), train, np.full(len(train), "train")),
        Points(np.concatenate(tests), np.tile(classes, len(tests)), np.repeat(groups, len(classes))),
    )


def _binary(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return pictures (N, 32, 32, 3) and classes (N,) of one file: a byte of class and 3072 of pixels per row."""
    try:
        content = np.fromfile(file, np.uint8)
    except FileNotFoundError:
        raise InputError("is missing", file=file, hint=CURE) from None
    if not content.size or content.size % (1 + PICTURE):
        raise InputError(f"holds {content.size:,} bytes, no multiple of {1 + PICTURE}", file=file, hint=CURE)
    rows = content.reshape(-1, 1 + PICTURE)
    if rows[:, 0].max() > 9:
        raise InputError(
            f"row {int(rows[:, 0].argmax())} has class {rows[:, 0].max()}, not 0 to 9", file=file
        )
    pictures = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pictures), rows[:, 0].astype(np.int64)


def _corrupted(file: Path, strength: int, clean: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the pictures of one strength, which follow each other in the file."""
    try:
        pictures = np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError("is missing", file=file, hint=CURE) from None
    except (ValueError, EOFError) as error:
        raise InputError(f"is no array ({error})", file=file, hint=CURE) from None
    if pictures.dtype != np.uint8 or pictures.shape != (5 * len(clean), *clean.shape[1:]):
        raise InputError(
            f"is {pictures.dtype} {pictures.shape}, not uint8 {(5 * len(clean), *clean.shape[1:])}", file=file
        )
    return np.array(pictures[(strength - 1) * len(clean) : strength * len(clean)])
