"""Log densities without training points, up to a constant, and their slopes in closed form.

Letters: P coordinates; "..." are any leading axes, such as draws. Functions of `xp` are written over its array functions, `numpy` or
`jax.numpy`, and over their data alone, so that their source is a program: `problem.python` gives it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Array = Any  # of the namespace


def gaussian(w: Array, xp: Any, *, stds: Any, axes: Any = None) -> Array:
    """Independent Gaussians along the columns of `axes` (P, P), or along the coordinates."""
    along = w if axes is None else xp.matmul(w, xp.asarray(axes))
    z = along / xp.asarray(stds)
    return -0.5 * (z * z).sum(axis=-1)


def gaussian_slope(w: Floats, *, stds: Any, axes: Any = None) -> Floats:
    if axes is None:
        return np.asarray(-w / np.square(stds))
    return np.asarray(-(w @ np.asarray(axes) / np.square(stds)) @ np.transpose(axes))


def funnel(w: Array, xp: Any) -> Array:
    """v ~ N(0, 9), x_k ~ N(0, exp v); w = (v, x)."""
    v, x = w[..., 0], w[..., 1:]
    return -v * v / 18 - 0.5 * xp.exp(-v) * (x * x).sum(axis=-1) - 0.5 * x.shape[-1] * v


def funnel_slope(w: Floats) -> Floats:
    v, x = w[..., :1], w[..., 1:]
    by_v = -v / 9 + 0.5 * np.exp(-v) * np.square(x).sum(axis=-1, keepdims=True) - 0.5 * x.shape[-1]
    return np.concatenate([by_v, -np.exp(-v) * x], axis=-1)


def eight_schools(w: Array, xp: Any, *, y: Any, sigma: Any) -> Array:
    """mu ~ N(0, 25), tau ~ Cauchy+(0, 5), y_j ~ N(mu + tau eta_j, sigma_j²); w = (mu, log tau, eta)."""
    mu, log_tau, eta = w[..., :1], w[..., 1:2], w[..., 2:]
    tau = xp.exp(log_tau)
    z = (xp.asarray(y) - mu - tau * eta) / xp.asarray(sigma)
    prior = -mu * mu / 50 - xp.log(1 + tau * tau / 25) + log_tau
    return prior[..., 0] - 0.5 * (eta * eta + z * z).sum(axis=-1)


def eight_schools_slope(w: Floats, *, y: Any, sigma: Any) -> Floats:
    mu, tau, eta = w[..., :1], np.exp(w[..., 1:2]), w[..., 2:]
    pull = (np.asarray(y) - mu - tau * eta) / np.square(sigma)
    by_mu = -mu / 25 + pull.sum(axis=-1, keepdims=True)
    by_log_tau = tau * (pull * eta).sum(axis=-1, keepdims=True) + 1 - 2 * tau**2 / (25 + tau**2)
    return np.concatenate([by_mu, by_log_tau, tau * pull - eta], axis=-1)


def eight_schools_centred(w: Array, xp: Any, *, y: Any, sigma: Any) -> Array:
    """The same with theta_j = mu + tau eta_j; w = (mu, log tau, theta)."""
    mu, log_tau, theta = w[..., :1], w[..., 1:2], w[..., 2:]
    tau = xp.exp(log_tau)
    eta, z = (theta - mu) / tau, (xp.asarray(y) - theta) / xp.asarray(sigma)
    prior = -mu * mu / 50 - xp.log(1 + tau * tau / 25) + (1 - len(y)) * log_tau
    return prior[..., 0] - 0.5 * (eta * eta + z * z).sum(axis=-1)


def eight_schools_centred_slope(w: Floats, *, y: Any, sigma: Any) -> Floats:
    mu, tau, theta = w[..., :1], np.exp(w[..., 1:2]), w[..., 2:]
    eta = (theta - mu) / tau
    by_mu = -mu / 25 + eta.sum(axis=-1, keepdims=True) / tau
    by_log_tau = np.square(eta).sum(axis=-1, keepdims=True) + 1 - len(y) - 2 * tau**2 / (25 + tau**2)
    return np.concatenate([by_mu, by_log_tau, (np.asarray(y) - theta) / np.square(sigma) - eta / tau], axis=-1)


def mixture(w: Array, xp: Any, *, weights: Any, centres: Any) -> Array:
    """Two Gaussians of covariance I, whose centres differ in the first coordinate."""
    first, rest = w[..., 0], w[..., 1:]
    of_modes = [np.log(p) - 0.5 * (first - c) * (first - c) for p, c in zip(weights, centres, strict=True)]
    return xp.logaddexp(*of_modes) - 0.5 * (rest * rest).sum(axis=-1)


def mixture_slope(w: Floats, *, weights: Any, centres: Any) -> Floats:
    first, (a, b) = w[..., :1], centres
    odds = np.log(weights[1] / weights[0]) + (b - a) * (first - (a + b) / 2)
    second = np.exp(-np.logaddexp(0, -odds))
    return np.concatenate([a + (b - a) * second - first, -w[..., 1:]], axis=-1)


def logistic_regression(w: Array, xp: Any, *, x: Any, y: Any, prior_std: float) -> Array:
    """y_n ~ Bernoulli(sigmoid(x_n w)), w ~ N(0, prior_std² I)."""
    logits = xp.matmul(w, xp.asarray(x).T)
    likelihood = (xp.asarray(y) * logits - xp.logaddexp(logits, 0.0)).sum(axis=-1)
    return likelihood - 0.5 * (w * w).sum(axis=-1) / prior_std**2


def logistic_regression_slope(w: Floats, *, x: Any, y: Any, prior_std: float) -> Floats:
    probability = np.exp(-np.logaddexp(0, -(w @ np.transpose(x))))
    return np.asarray((np.asarray(y) - probability) @ np.asarray(x) - w / prior_std**2)
