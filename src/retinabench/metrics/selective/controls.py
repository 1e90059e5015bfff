"""Two controls on the same axes as any model: a referral that knows nothing, and one that knows every error."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from retinabench.predictions.table import Predictions


def random_referral(predictions: Predictions) -> Predictions:
    """Return the same answers, referred in random order: the exact expectation, not one draw.

    Every image gets the same uncertainty; ties are shared evenly, so that every curve is its expectation.
    """
    return _with(predictions, np.zeros(len(predictions)), "random referral")


def oracle_referral(predictions: Predictions) -> Predictions:
    """Return the same answers, the wrong ones referred first: the best that any uncertainty could do for accuracy."""
    wrong = (predictions.prob > 0.5) != (predictions.label == 1)
    return _with(predictions, wrong.astype(np.float64), "oracle referral")


def _with(predictions: Predictions, uncertainty: np.ndarray, name: str) -> Predictions:
    method = predictions.metadata.get("method", "model")
    return replace(
        predictions,
        uncertainty=uncertainty,
        metadata={**predictions.metadata, "method": f"{method}, {name}"},
    )
