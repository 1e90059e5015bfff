"""CIFAR-10, and four kinds of corruption from CIFAR-10-C.

| | |
|---|---|
| input | 32 x 32 colour images: 50,000 to train on, 10,000 to test on, and the test images in four kinds of corruption |
| target | 10 classes |
| groups | `clean`, `corrupted-gaussian_noise-2`, `corrupted-brightness-3`, `corrupted-pixelate-4`, `corrupted-zoom_blur-5` |
| citation | Krizhevsky 2009; Hendrycks and Dietterich 2019, https://zenodo.org/records/2535967 |
| how to get it | see `HINT` |

Read from the binary version (`cifar-10-batches-bin`: data_batch_1.bin … test_batch.bin), since the files of the Python
version are pickles, and from CIFAR-10-C's `gaussian_noise.npy` and so on (50,000 images by strength) in a folder
`CIFAR-10-C` beside it. The reference posterior of the approximate-inference competition of 2021 may be that of 40,960 of
the 50,000 training images.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.data.dataset import ArrayDataset, concatenate

PIXELS = 3 * 32 * 32
CORRUPTED = (("gaussian_noise", 2), ("brightness", 3), ("pixelate", 4), ("zoom_blur", 5))
HINT = (
    "Name by --data a folder with cifar-10-batches-bin/ (https://www.cs.toronto.edu/~kriz/cifar.html, binary version) "
    "and CIFAR-10-C/ (https://zenodo.org/records/2535967)."
)


def read(source: Path | None) -> ArrayDataset:
    if source is None:
        raise InputError("the data of 'cifar10' do not come with the package", hint=HINT)
    folder = source / "cifar-10-batches-bin"
    parts = [_binary(folder / f"data_batch_{k}.bin") for k in range(1, 6)]
    clean, classes = _binary(folder / "test_batch.bin")
    corrupted = [_corrupted(source / "CIFAR-10-C" / f"{kind}.npy", k, clean) for kind, k in CORRUPTED]
    groups = ["clean", *(f"corrupted-{kind}-{strength}" for kind, strength in CORRUPTED)]
    train = np.concatenate([of_part for _, of_part in parts])
    images, tests = np.concatenate([images for images, _ in parts]), np.concatenate([clean, *corrupted])
    targets, group = np.tile(classes, 1 + len(CORRUPTED)), np.repeat(groups, len(classes))
    fitted = ArrayDataset(images, train, np.full(len(train), "train"))
    return concatenate({"train": fitted, "test": ArrayDataset(tests, targets, group)})


def _binary(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return images (N, 32, 32, 3) and classes (N,) of one file: a byte of class and 3072 of pixels per row."""
    try:
        content = np.fromfile(file, np.uint8)
    except FileNotFoundError:
        raise InputError("is missing", file=file, hint=HINT) from None
    if not content.size or content.size % (1 + PIXELS):
        raise InputError(f"holds {content.size:,} bytes, no multiple of {1 + PIXELS}", file=file, hint=HINT)
    rows = content.reshape(-1, 1 + PIXELS)
    if rows[:, 0].max() > 9:
        raise InputError(f"row {int(rows[:, 0].argmax())} has class {rows[:, 0].max()}, not 0 to 9", file=file)
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), rows[:, 0].astype(np.int64)


def _corrupted(file: Path, strength: int, clean: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the images of one strength; the file holds the five strengths one after the other."""
    try:
        images = np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError("is missing", file=file, hint=HINT) from None
    except (ValueError, EOFError) as error:
        raise InputError(f"is not an array ({error})", file=file, hint=HINT) from None
    if images.dtype != np.uint8 or images.shape != (5 * len(clean), *clean.shape[1:]):
        raise InputError(f"is {images.dtype} {images.shape}, not uint8 {(5 * len(clean), *clean.shape[1:])}", file=file)
    return np.array(images[(strength - 1) * len(clean) : strength * len(clean)])
