"""From arrays without a file: the scores of an estimator, a function of images, and one curve over referral."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.metrics import published
from retinabench.metrics.referral_curves import METRICS, Curve, Metric, curve_of
from retinabench.metrics.scoring import Rules, Scores, check_rules, score
from retinabench.metrics.weighted_images import Cases, Floats
from retinabench.predictions.table import Predictions

# The interface of the benchmark's first edition (2019): a function from images to (mean, uncertainty), in NumPy arrays, without a file.
Estimator = Callable[[NDArray[Any]], tuple[ArrayLike, ArrayLike]]
OF_SPLITS = ("grade", "patient_id", "domain", "split")


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
        >>> from retinabench.metrics.arrays import Arrays
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
        answer: object = estimator(images)
        if not isinstance(answer, tuple) or len(answer) != 2:
            hint = "It must return (mean, uncertainty), one number per image each."
            raise InputError(f"the estimator returned {type(answer).__name__} for batch {number}", hint=hint)
        means.append(_per_image("mean", answer[0], len(images), number))
        uncertainties.append(_per_image("uncertainty", answer[1], len(images), number))
    seen, expected = sum(map(len, means)), len(np.asarray(split.label))
    if seen != expected:
        raise InputError(f"the batches hold {seen} images, the split has {expected} labels")
    if not seen:
        raise InputError("the split holds no images")
    known = {name: values for name in OF_SPLITS if (values := getattr(split, name, None)) is not None}
    known["uncertainty"] = np.concatenate(uncertainties)
    return Predictions(np.asarray(split.image_id), np.asarray(split.label), np.concatenate(means), **known)


def _per_image(name: str, values: ArrayLike, images: int, batch: int) -> Floats:
    array = np.asarray(values)
    if array.shape == (images, 1):
        array = array[:, 0]
    if array.shape != (images,):
        problem = f"the estimator's {name} has shape {array.shape} for batch {batch} of {images} images"
        raise InputError(problem, hint="Return one number per image.")
    return array.astype(np.float64)


def referral_curve(
    label: ArrayLike,
    prob: ArrayLike,
    uncertainty: ArrayLike,
    metric: Metric,
    rules: Rules = "corrected",
    weight: ArrayLike | None = None,
) -> Curve:
    """Return the curve of a metric over the fraction of images referred.

    Corrected values equal scikit-learn on the retained images at every count, to 1e-12. AUPRC is average precision. The
    area is the plain mean over all counts; that of AUROC and AUPRC is the mean over the counts that refer at most half of the
    images, NaN with a `why` unless both classes remain there. Models that retain
    different images are not ordered by these values alone: read sensitivity and prevalence of the retained beside them.

    Args:
        label: (N,) 0 or 1.
        prob: (N,) P(label = 1).
        uncertainty: (N,), the largest is referred first.
        metric: One of `METRICS`; NLL is in nats.
        rules: `corrected`, or `published` for the released Retina Benchmark's code (accuracy, nll, auroc and auprc; no
            weights), see `docs/deviations.md`.
        weight: (N,) images that each row stands for; whole numbers equal repetition.

    Returns:
        The curve; nothing is referred at its first point.

    Raises:
        InputError: The arrays do not fit each other, or the metric or the rules are not known.

    Examples:
        >>> import retinabench as rb
        >>> curve = rb.referral_curve([0, 1, 1, 0], [0.1, 0.9, 0.4, 0.2], [0.3, 0.2, 0.9, 0.4], "accuracy")
        >>> curve.value.tolist()
        [0.75, 1.0, 1.0, 1.0]
        >>> round(curve.area, 12)
        0.9375
    """
    check_rules(rules)
    if rules == "published":
        if weight is not None:
            raise InputError("the published rules know no weights", hint="Use rules='corrected'.")
        Cases(label, prob, uncertainty)  # the same inputs are refused
        return published.referral_curve(label, prob, uncertainty, metric)
    if metric not in METRICS:
        raise InputError(f"unknown metric '{metric}'", hint=nearest(metric, METRICS))
    return curve_of(Cases(label, prob, uncertainty).weighted(weight), metric)
