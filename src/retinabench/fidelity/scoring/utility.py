"""Usefulness of a submission, measured against the true labels and not the reference."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retinabench.fidelity.scoring.resampling import Estimate, Measure, Values, mean_of
from retinabench.metrics.scoring import referral_curve
from retinabench.metrics.uncertainty import binary_entropy


def classification(probs: NDArray[np.floating], label: NDArray[np.int64]) -> dict[str, Measure]:
    """Return accuracy and mean negative log-likelihood of probabilities (n, C) to classes (n,)."""
    with np.errstate(divide="ignore"):
        nll = -np.log(probs[np.arange(len(probs)), label].astype(np.float64))
    return {"accuracy": mean_of(probs.argmax(axis=1) == label), "nll": mean_of(nll)}


def referral_area(
    probs: NDArray[np.floating], label: NDArray[np.int64], needs_expert: NDArray[np.bool_]
) -> Estimate:
    """Return the mean accuracy of P(needs an expert) > 1/2 over all shares referred, the most uncertain first.

    Shapes: `needs_expert` (C,).
    """
    prob = np.clip(probs[:, needs_expert].sum(axis=1, dtype=np.float64), 0, 1)
    uncertainty = np.round(binary_entropy(prob), 12)  # p and 1 - p are equally uncertain
    area = referral_curve(needs_expert[label].astype(int), prob, uncertainty, "accuracy").area
    return Estimate(area, np.empty(0))


def regression(draws: NDArray[np.floating], truth: NDArray[np.floating]) -> dict[str, Measure]:
    """Return RMSE of the mean, CRPS and the share of y (n,) inside the central 90 % of the draws (n, S)."""
    y = np.asarray(truth, np.float64)
    low, high = np.quantile(draws, (0.05, 0.95), axis=1)
    squares = (draws.mean(axis=1, dtype=np.float64) - y) ** 2
    return {
        "rmse": Measure(squares[:, None], lambda means: np.sqrt(means[..., 0])),
        "crps": mean_of(crps(draws, y)),
        "coverage_90": mean_of((y >= low) & (y <= high)),
    }


def crps(draws: NDArray[np.floating], y: Values) -> Values:
    """Return E|Y - y| - ½ E|Y - Y'| of the empirical distribution of draws (n, S), for truths y (n,).

    References:
        Gneiting & Raftery 2007, "Strictly proper scoring rules, prediction, and estimation".
    """
    ordered = np.sort(draws.astype(np.float64), axis=1)
    s = ordered.shape[1]
    # Σ_ij |y_i - y_j| = 2 Σ_i (2 i - s + 1) y_(i), i from 0.
    pairs = ordered @ (2 * np.arange(s) - s + 1) / s**2
    return np.asarray(np.abs(ordered - y[:, None]).mean(axis=1) - pairs)
