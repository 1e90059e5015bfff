"""How unsure a model is of each image, from its posterior samples, in nats.

With p_s the probability of posterior sample s, p = mean_s p_s, and H(p) = -p ln p - (1-p) ln(1-p) the entropy of a yes/no answer:

| name | formula | misleads when |
|---|---|---|
| `total` (default) | H(p) | compared with max probability or sqrt(p(1-p)): the ranking is the same |
| `aleatoric` | mean_s H(p_s) | the samples agree for the wrong reason |
| `epistemic` | total - aleatoric | there is one sample: it is 0 and the referral random |
| `variance` | mean_s (p_s - p)^2, unitless | as epistemic |
| `max_probability` | 1 - max(p, 1-p), unitless | as total |
| `margin` | exp(-abs(logit p - logit t)), t the decision threshold | t is not the cost of a false alarm over that of a miss |
| `own` | the file's column `uncertainty`, any scale | its sign is turned: the largest is referred first |
| NAME | the file's column `uncertainty_NAME`, any scale | as own |

Total, the maximum probability and the standard deviation sqrt(p(1-p)) are one ranking: they all order images by
|p - 1/2|, also where the decision is made at another threshold t; the margin is largest at t, where the model's decision
changes (at t = 1/2 it is that same ranking). Only epistemic, aleatoric and variance depend on how the samples
differ, which needs more than one of them.

Source: Depeweg et al., ICML 2018; Filos et al. 2019; Band et al. 2021 (Retina Benchmark), equations 1 and 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlog1py, xlogy

from retinabench.core.errors import InputError, nearest
from retinabench.metrics.arrays import Floats
from retinabench.metrics.weighted_images import EPS
from retinabench.predictions.table import Predictions

DIGITS = 12


def binary_entropy(p: ArrayLike) -> Floats:
    """H(p) = -p ln p - (1-p) ln(1-p) in nats, any shape; 0 ln 0 = 0, nothing is clipped. At most ln 2 = 0.6931."""
    p = np.asarray(p, np.float64)
    return np.asarray(-(xlogy(p, p) + xlog1py(1 - p, -p)))


@dataclass(frozen=True)
class Uncertainty:
    """Per image, all (N,): predictive mean, and its uncertainties (nats; `variance` and `max_probability` unitless)."""

    mean: Floats
    total: Floats
    aleatoric: Floats
    epistemic: Floats
    variance: Floats
    max_probability: Floats


def decompose(probs: ArrayLike) -> Uncertainty:
    """Split the uncertainty of (N, S) or (N,) probabilities; formulas at the top of this file.

    `variance` is the population variance (ddof 0); `max_probability` is 1 - max(p, 1-p), in [0, 1/2]. Epistemic is
    never clipped: with equal samples it is 0 up to rounding, which can be negative by 1e-16.
    """
    probs = np.asarray(probs, np.float64)
    samples = probs[:, None] if probs.ndim == 1 else probs
    mean = samples.mean(axis=1)
    total, aleatoric = binary_entropy(mean), binary_entropy(samples).mean(axis=1)
    return Uncertainty(mean, total, aleatoric, total - aleatoric, samples.var(axis=1), 1 - np.maximum(mean, 1 - mean))


def margin(prob: ArrayLike, threshold: float) -> Floats:
    """Return how near probabilities are to the decision threshold: exp(-|logit p - logit t|).

    That is the odds of the one over the odds of the other, the smaller over the larger. The threshold is clipped to
    [1e-15, 1 - 1e-15].
    Shapes: `prob` (N,), returns (N,).
    """
    p, t = np.asarray(prob, np.float64), min(max(threshold, EPS), 1 - EPS)
    with np.errstate(divide="ignore", over="ignore"):
        ratio = p / (1 - p) * ((1 - t) / t)
        return np.minimum(ratio, 1 / ratio)


UNCERTAINTIES = ("total", "epistemic", "aleatoric", "variance", "max_probability", "margin")


def referral_uncertainty(
    predictions: Predictions, name: str = "auto", *, exact: bool = False, threshold: float = 0.5
) -> tuple[Floats, str]:
    """Return the values that order the referral, the largest first, and the name of what they are.

    Of several names, separated by commas, the first one orders. Computed values keep 12 significant digits (epistemic: of the total), unless `exact`: p = 0.3 and p = 0.7 are equally
    uncertain, and equal samples have no epistemic uncertainty, but in floating point their values differ in the 16th digit, and
    an order made of rounding errors would look like information. A user's own column is taken as it is.
    Shapes: returns (N,).
    """
    name = name.partition(",")[0]
    if name == "auto":
        # The entropy is largest at one half, and says little about decisions at another threshold.
        name = ("total" if threshold == 0.5 else "margin") if predictions.uncertainty is None else "own"
    if name == "own":
        if predictions.uncertainty is None:
            raise InputError(
                "is missing",
                file=predictions.source,
                column="uncertainty",
                hint=f"Add the column, or choose one of: {', '.join(UNCERTAINTIES)}.",
            )
        return np.asarray(predictions.uncertainty, np.float64), name
    if name in predictions.uncertainties:
        return np.asarray(predictions.uncertainties[name], np.float64), name
    if name not in UNCERTAINTIES:
        valid = ("auto", "own", *UNCERTAINTIES, *predictions.uncertainties)
        raise InputError(f"unknown uncertainty '{name}'", hint=nearest(name, valid))
    if name == "margin":
        values = margin(predictions.prob, threshold)
        return values if exact else significant(values), name
    if name in ("total", "max_probability"):  # of the mean alone
        mean = predictions.prob
        values = scale = binary_entropy(mean) if name == "total" else 1 - np.maximum(mean, 1 - mean)
    else:
        parts = decompose(predictions.probs)
        values = getattr(parts, name)
        scale = parts.total if name == "epistemic" else values
    return values if exact else significant(values, scale), name


def significant(values: Floats, scale: Floats | None = None) -> Floats:
    """Keep `DIGITS` digits of each value (N,), counted from the first digit of its scale."""
    scale = values if scale is None else scale
    with np.errstate(divide="ignore"):
        place = np.where(scale > 0, np.floor(np.log10(scale)), 0.0)
    unit = 10.0 ** np.maximum(place - DIGITS + 1, -300)
    return np.asarray(np.round(values / unit) * unit + 0.0)


def uncertainties(values: ArrayLike, n: int) -> Floats:
    u = np.asarray(values, np.float64)
    if u.shape != (n,) or not np.isfinite(u).all():
        raise InputError(f"needed are {n} finite numbers, one per image", column="uncertainty")
    return u
