"""Scoring a function from images to (mean, uncertainty), without a predictions file.

This is the interface of the benchmark's first edition (2019), for any framework: the estimator takes and returns NumPy
arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.arrays import Floats
from retinabench.metrics.image_sets import Scores
from retinabench.metrics.scoring import Rules, score
from retinabench.predictions.table import Predictions

Estimator = Callable[[NDArray[Any]], tuple[ArrayLike, ArrayLike]]
OPTIONAL = ("grade", "patient_id", "domain", "split")


class Split(Protocol):
    """Images with labels, in batches. May also hold grade, patient_id, domain and split, (N,) each."""

    @property
    def image_id(self) -> ArrayLike:
        """(N,) unique names, in the order of the batches."""

    @property
    def label(self) -> ArrayLike:
        """(N,) 1 = referable, else 0."""

    def batches(self) -> Iterable[ArrayLike]:
        """Arrays (B, H, W, 3), uint8 in 0 … 255 or floating point, as the estimator needs it."""


@dataclass(frozen=True, eq=False)
class Arrays:
    """A `Split` of arrays in memory: images (N, H, W, 3), label (N,), and what else is known of each image."""

    images: NDArray[Any]
    label: ArrayLike
    image_id: ArrayLike | None = None
    grade: ArrayLike | None = None
    patient_id: ArrayLike | None = None
    domain: ArrayLike | None = None
    split: ArrayLike | None = None
    batch_size: int = 64

    def __post_init__(self) -> None:
        if self.image_id is None:
            object.__setattr__(self, "image_id", np.arange(len(self.images)).astype(np.str_))

    def batches(self) -> Iterator[NDArray[Any]]:
        """Images in order, `batch_size` at a time."""
        for start in range(0, len(self.images), self.batch_size):
            yield self.images[start : start + self.batch_size]


def evaluate(
    estimator: Estimator, split: Split, rules: Rules = "corrected", bootstrap: int = 1000, seed: int = 0
) -> Scores:
    """Score an estimator on a split.

    Args:
        estimator: Images (B, H, W, 3) -> (mean, uncertainty), (B,) each: P(referable) in [0, 1], and any finite number
            that is larger for images to be referred first. uint8 images reach it as float32 in [0, 1], others as they are.
        split: Images with labels, in batches.
        rules: As in `score`.
        bootstrap: As in `score`.
        seed: As in `score`.

    Returns:
        The scores.

    Raises:
        InputError: The estimator's arrays do not fit the batch, or the batches do not fit the labels.

    Examples:
        >>> import numpy as np
        >>> import retinabench as rb
        >>> from retinabench.metrics.estimator import Arrays
        >>> images = np.linspace(0, 1, 4)[:, None, None, None] * np.ones((4, 2, 2, 3))
        >>> def estimator(batch):
        ...     mean = batch.mean(axis=(1, 2, 3))
        ...     return mean, mean * (1 - mean)
        >>> rb.evaluate(estimator, Arrays(images, label=[0, 0, 1, 1]), bootstrap=0)["in_domain"].auroc.value
        1.0
    """
    return score(predict(estimator, split), rules=rules, bootstrap=bootstrap, seed=seed)


def predict(estimator: Estimator, split: Split) -> Predictions:
    """Return the estimator's predictions on a split, to be written, scored or compared; see `evaluate`."""
    means, uncertainties = [], []
    for number, batch in enumerate(split.batches(), start=1):
        images = np.asarray(batch)
        if images.dtype == np.uint8:
            images = images.astype(np.float32) / np.float32(255)
        answer = estimator(images)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise InputError(
                f"the estimator returned {type(answer).__name__} for batch {number}",
                hint="It must return (mean, uncertainty), one number per image each.",
            )
        means.append(_per_image("mean", answer[0], len(images), number))
        uncertainties.append(_per_image("uncertainty", answer[1], len(images), number))
    seen, expected = sum(map(len, means)), len(np.asarray(split.label))
    if seen != expected:
        raise InputError(f"the batches hold {seen} images, the split has {expected} labels")
    if not seen:
        raise InputError("the split holds no images")
    known = {name: values for name in OPTIONAL if (values := getattr(split, name, None)) is not None}
    return Predictions(
        np.asarray(split.image_id),
        np.asarray(split.label),
        np.concatenate(means),
        uncertainty=np.concatenate(uncertainties),
        **known,
    )


def _per_image(name: str, values: ArrayLike, images: int, batch: int) -> Floats:
    array = np.asarray(values)
    if array.shape == (images, 1):
        array = array[:, 0]
    if array.shape != (images,):
        problem = f"the estimator's {name} has shape {array.shape} for batch {batch} of {images} images"
        raise InputError(problem, hint="Return one number per image.")
    return array.astype(np.float64)
