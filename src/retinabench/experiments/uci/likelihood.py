"""What is measured on the test rows: log-likelihood in nats per point and root mean squared error.

A prediction is a mixture of T Gaussians per point: means (T, N) and variances (T, N), or whatever broadcasts to it, all
in the target's own units; hence the log-likelihood is of the target's own units too (minutes instead of hours lower
it by log 60).
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from retinabench.data.datasets.uci import Floats


def gaussian_log_density(target: Floats, mean: Floats, variance: Floats) -> Floats:
    """log N(target; mean, variance)."""
    density: Floats = -0.5 * (np.log(2 * np.pi * variance) + (target - mean) ** 2 / variance)
    return density


def mixture_log_likelihood(target: Floats, means: Floats, variances: Floats) -> float:
    """Mean over N points of log (1/T Σ_t N(y; m_t, v_t)): the likelihood of the predictive distribution itself."""
    components = gaussian_log_density(target, means, variances)
    return float(np.mean(logsumexp(components, axis=0) - np.log(len(components))))


def matched_log_likelihood(target: Floats, means: Floats, variances: Floats) -> float:
    """Mean log-likelihood of one Gaussian per point with the mixture's mean and variance (Lakshminarayanan 2017).

    The variance is that of the law of total variance: mean of the variances + variance of the means.
    """
    variance = np.mean(np.broadcast_to(variances, means.shape), axis=0) + np.var(means, axis=0)
    return float(np.mean(gaussian_log_density(target, means.mean(axis=0), variance)))


def rmse(target: Floats, means: Floats) -> float:
    """Root mean squared error of the predictive mean."""
    return float(np.sqrt(np.mean((target - means.mean(axis=0)) ** 2)))


def measure(target: Floats, means: Floats, variances: Floats) -> dict[str, float]:
    """Return all measures of one split."""
    return {
        "log_likelihood": mixture_log_likelihood(target, means, variances),
        "matched_log_likelihood": matched_log_likelihood(target, means, variances),
        "rmse": rmse(target, means),
    }


def best_constant_log_likelihood(error: float) -> float:
    """Return -½ log(2πe error²): what a Gaussian of one constant variance reaches at best at this RMSE."""
    return float(-0.5 * np.log(2 * np.pi * np.e * error**2))
