"""Predictions and scores of a network's raw outputs, for the hooks into other libraries' training loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from retinabench.core.errors import InputError, nearest
from retinabench.metrics.registry import SCORES
from retinabench.metrics.score import score
from retinabench.predictions.adapters import GRADES
from retinabench.predictions.table import Predictions

Outputs = Literal["logits", "probabilities"]
DEFAULT_SCORES = ("auroc", "accuracy", "nll", "failure_auroc", "referral_accuracy_area")


def predictions_of(
    values: ArrayLike,
    columns: Mapping[str, Any],
    outputs: Outputs = "logits",
    referable_from: int | None = None,
) -> Predictions:
    """Return the predictions of a network's outputs.

    Args:
        values: (N,) or (N, C) outputs, or (N, S, C) of S posterior samples; C is 1 for a single logit or probability.
        columns: Columns of `Predictions` by name, (N,) each. A `label` without `grade` is the grade where C is 5, and the
            class where C is another number above 2.
        outputs: What the values are.
        referable_from: The lowest referable class; None: 1 of two classes, 2 of five.

    Returns:
        The predictions.

    Raises:
        InputError: The columns or values do not fit.
    """
    numbers, known = np.asarray(values), dict(columns)
    numbers = numbers[:, None] if numbers.ndim == 1 else numbers
    for name, column in known.items():
        if len(column) != len(numbers):
            raise InputError(f"{name} has {len(column)} values for {len(numbers)} images")
    label, image_id, classes = known.pop("label", None), known.pop("image_id", None), numbers.shape[-1]
    if label is not None and "grade" not in known:
        if classes == GRADES:
            known["grade"], label = label, None
        elif classes > 2 and referable_from is not None:
            label = np.asarray(label) >= referable_from
    if "grade" in known:
        known["grades"] = known.pop("grade")
    known["referable_from"] = referable_from
    if outputs == "logits":
        return Predictions.from_logits(numbers, image_id, label, **known)
    if classes == 1:
        numbers = np.concatenate([1 - numbers, numbers], axis=-1)
    return Predictions.from_softmax(numbers, image_id, label, **known)


def check_scores(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of scores; raises `InputError` where one is unknown."""
    for name in names:
        if name not in SCORES:
            raise InputError(f"unknown score '{name}'", hint=nearest(name, list(SCORES)))
    return tuple(names)


def scores_of(predictions: Predictions, names: Sequence[str]) -> dict[str, float]:
    """Return some scores of predictions on one set, without intervals; NaN where one is undefined."""
    (found,) = score(predictions, bootstrap=0).sets.values()
    return {name: float(found.scores[name].value) for name in names}
