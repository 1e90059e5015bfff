"""What remains when the most uncertain images are referred, half of them or another share: the numbers of the report."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.classification import sensitivity_within
from retinabench.metrics.selective.referral_curves import METRICS
from retinabench.metrics.sorted_images import Weighted

Floats = NDArray[np.float64]

SPECIFICITY = 0.80
_AT = (
    "accuracy", "gain", "closed", "perfect_accuracy", "sensitivity", "specificity", "prevalence", "missed",
)  # fmt: skip
_CURVES = ("accuracy", "sensitivity", "specificity", "prevalence")


def names(referred: float = 0.5) -> tuple[str, ...]:
    """Return the names of `numbers` in this order, such as ``gain_at_50``; each is defined in `metrics/definitions.toml`."""
    return (*(f"{name}_at_{100 * referred:g}" for name in _AT), "sensitivity_at_specificity_80")


NAMES = names()


def numbers(w: Weighted, referred: float = 0.5) -> Floats:
    """Return the (K,) numbers named by `names`; NaN where undefined.

    Args:
        w: The weighted images.
        referred: At least this share is referred.

    Returns:
        The numbers of the retained images, and the sensitivity of all images at a specificity of 0.80.
    """
    total, half = len(w.points), int((1 - referred) * len(w.points) + 1e-9)
    if half == 0:
        return np.full(len(NAMES), np.nan)
    value = {name: float(METRICS[name](w)[0][half - 1]) for name in _CURVES}
    accuracy = 1 - w.retained_error[-1] / w.total
    perfect = min(1.0, accuracy * total / half)
    gain = value["accuracy"] - accuracy
    positives = w.retained_positives[half - 1]
    missed = (1 - value["sensitivity"]) * positives if positives else 0
    return np.array(
        [
            value["accuracy"],
            gain,
            gain / (perfect - accuracy) if perfect > accuracy else np.nan,
            perfect,
            value["sensitivity"],
            value["specificity"],
            value["prevalence"],
            missed / w.positives if w.positives else np.nan,
            float(sensitivity_within(w, np.array([1 - SPECIFICITY]))[0]),
        ]
    )


def retained_counts(
    w: Weighted, success: str, of: str = "images", referred: float = 0.5
) -> tuple[Floats, Floats]:
    """Return what a proportion of the retained images counts, for its interval.

    Args:
        w: The weighted images.
        success: `right`, `called` (positive), `not called` or `label`.
        of: `images`, `positives` or `negatives`.
        referred: At least this fraction is referred.

    Returns:
        Success (N,) of each image, 0 or 1, and what remains of its weight (N,).
    """
    label = w.cases.label
    hit = {"right": ~w.cases.error, "called": w.cases.called, "not called": ~w.cases.called, "label": label}
    among = {"images": np.ones_like(label), "positives": label, "negatives": ~label}
    kept = w.retained(int(np.floor((1 - referred) * len(w.points) + 1e-9)))
    return hit[success].astype(np.float64), np.where(among[of], kept, 0.0)


def missed_counts(w: Weighted, referred: float = 0.5) -> tuple[Floats, Floats]:
    """Return what `missed_at_50` counts: the share (N,) of each image retained and called negative, of the positive mass (N,).

    Args:
        w: The weighted images.
        referred: At least this fraction is referred.

    Returns:
        The shares, and the positive mass.
    """
    kept = retained_counts(w, "right", referred=referred)[1]
    share = np.divide(kept, w.weight, out=np.zeros_like(kept), where=w.weight > 0)
    return np.where(w.cases.called, 0.0, share), w.positive


def counts_at_specificity(w: Weighted) -> tuple[Floats, Floats]:
    """Return what `sensitivity_at_specificity_80` counts: (N,) above its threshold, of the positive mass (N,)."""
    ranking = w.cases.by_prob
    false = ranking.cumulate(w.negative) / w.negatives
    allowed = np.flatnonzero(false <= 1 - SPECIFICITY + 1e-12)
    lowest = ranking.values[allowed[-1]] if len(allowed) else np.inf
    return (w.cases.prob >= lowest).astype(np.float64), w.positive


def number(w: Weighted, name: str, referred: float = 0.5) -> float:
    """Return one of `numbers`.

    Args:
        w: The weighted images.
        name: One of `names` at this share.
        referred: At least this fraction is referred.

    Returns:
        The number; NaN where undefined.

    References:
        Filos et al., A systematic comparison of Bayesian deep learning robustness in diabetic retinopathy tasks,
        arXiv:1912.10481 (2019).
    """
    return float(numbers(w, referred)[names(referred).index(name)])
