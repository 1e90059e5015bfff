"""P(referable) from the outputs of classifiers: class probabilities (softmax) and logits."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax

from retinabench.predictions.validation.check import Check

_ROUNDING = 0.03  # of the sum of printed probabilities


def referable_probability(check: Check, probs: ArrayLike, lowest: int) -> NDArray[np.float64]:
    """Return P(referable), the sum of the classes from `lowest` on.

    Args:
        check: Names the file in messages.
        probs: (N, C) class probabilities, or (N, S, C) of S posterior samples.
        lowest: The first referable class.

    Returns:
        (N,) or (N, S), divided by the sums of the rows where printed digits leave these off 1.

    Raises:
        InputError: A value is not a probability, or a row does not sum to 1.
    """
    values = check.finite("probs", check.array("probs", probs), (2, 3))
    classes = values.shape[-1]
    if not 0 < lowest < classes:
        raise check.fail(
            "probs", None, f"has {classes} classes: none is below, or none from, class {lowest} on"
        )
    sums = values.sum(axis=-1)
    outside = (values < -_ROUNDING) | (values > 1 + _ROUNDING)
    off = np.argwhere(outside.any(axis=-1) | (np.abs(sums - 1) > _ROUNDING))
    if off.size:
        place = tuple(off[0])
        logits = bool(outside.any() and np.ptp(sums) > 2 * _ROUNDING)
        hint = "These are no class probabilities: posterior samples of P(referable) need no softmax."
        raise check.fail(
            "probs",
            off[0][0],
            f"sums to {sums[place]:g} over the classes, not to 1",
            "Are they logits? Use Predictions.from_logits." if logits else hint,
        )
    return np.asarray(np.clip(values[..., lowest:].sum(axis=-1) / sums, 0, 1))


def class_probabilities(check: Check, logits: ArrayLike) -> NDArray[np.float64]:
    """Return the softmax of logits over their last axis, or the sigmoid of a single logit as two classes.

    Args:
        check: Names the file in messages.
        logits: (N,) or (N, 1) of a single output; (N, C) of C classes; (N, S, C) or (N, S, 1) of S samples.

    Returns:
        Probabilities, the last axis over the classes.
    """
    values = check.finite("logits", check.array("logits", logits), (1, 2, 3))
    if values.ndim == 1:
        values = values[:, None]
    if values.shape[-1] == 1:
        return np.concatenate([expit(-values), expit(values)], axis=-1)
    return np.asarray(softmax(values, axis=-1))
