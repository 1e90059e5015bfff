"""Images whose lesions are known: what is in which of them, with a mask per kind of lesion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class LesionImages:
    """N images and the truth of C concepts about each.

    Images and masks are made on request, so that a collection may be far larger than memory.

    Args:
        sample_id: (N,) text.
        concepts: C names.
        truth: (N, C), whether the concept is present in the image.
        patient_id: (N,), so that no patient is both trained on and asked about.
        image: ``image(row, size)`` -> (size, size, 3) uint8, with the field of view filling the square.
        masks: ``masks(row)`` -> (C, H, W) bool on the same square, at a resolution of the source.
    """

    sample_id: NDArray[np.str_]
    concepts: tuple[str, ...]
    truth: NDArray[np.bool_]
    patient_id: NDArray[np.str_]
    image: Callable[[int, int], NDArray[np.uint8]]
    masks: Callable[[int], NDArray[np.bool_]]

    def __len__(self) -> int:
        return len(self.sample_id)
