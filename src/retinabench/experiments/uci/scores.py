"""Scores on the test rows: log-likelihood in nats per point and root mean squared error.

A prediction is a mixture of T Gaussians per point: means (T, N) and variances (T, N), or whatever broadcasts to it, all
in the target's own units; hence the log-likelihood is of the target's own units too (minutes instead of hours lower
it by log 60).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import logsumexp

from retinabench.core.results import JsonObject
from retinabench.data.datasets.uci import Floats


def _gaussian_log_density(target: Floats, mean: Floats, variance: Floats) -> Floats:
    """log N(target; mean, variance)."""
    density: Floats = -0.5 * (np.log(2 * np.pi * variance) + (target - mean) ** 2 / variance)
    return density


def mixture_log_likelihood(target: Floats, means: Floats, variances: Floats) -> float:
    """Mean over N points of log (1/T Σ_t N(y; m_t, v_t)): the likelihood of the predictive distribution itself.

    Args:
        target: (N,) y.
        means: (T, N) of the components.
        variances: Of the components, of the same shape or one that broadcasts to it.

    Returns:
        The log-likelihood in nats per point.
    """
    components = _gaussian_log_density(target, means, variances)
    return float(np.mean(logsumexp(components, axis=0) - np.log(len(components))))


def matched_log_likelihood(target: Floats, means: Floats, variances: Floats) -> float:
    """Mean log-likelihood of one Gaussian per point with the mixture's mean and variance (Lakshminarayanan 2017).

    The variance is that of the law of total variance: mean of the variances + variance of the means.

    Args:
        target: (N,) y.
        means: (T, N) of the components.
        variances: Of the components, of the same shape or one that broadcasts to it.

    Returns:
        The log-likelihood in nats per point.
    """
    variance = np.mean(np.broadcast_to(variances, means.shape), axis=0) + np.var(means, axis=0)
    return float(np.mean(_gaussian_log_density(target, means.mean(axis=0), variance)))


def rmse(target: Floats, means: Floats) -> float:
    """Root mean squared error of the predictive mean."""
    return float(np.sqrt(np.mean((target - means.mean(axis=0)) ** 2)))


@dataclass(frozen=True)
class SplitScores:
    """The scores of one split; see the functions of these names."""

    log_likelihood: float
    matched_log_likelihood: float
    rmse: float


@dataclass(frozen=True)
class SetResult:
    """One method on all splits of one set.

    Args:
        set: Name of the set.
        method: Name of the method.
        title: The method's name for readers.
        data: Fingerprint of data and splits.
        points: Rows of the set.
        splits: Scores by split.
    """

    set: str
    method: str
    title: str
    data: str
    points: int
    splits: tuple[SplitScores, ...]

    def values(self, score: str) -> Floats:
        """Return a score of every split, (K,)."""
        return np.array([getattr(split, score) for split in self.splits])

    def to_dict(self) -> JsonObject:
        """Return the result as JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, content: JsonObject) -> SetResult:
        """Return what `to_dict` wrote; other keys are ignored."""
        given = {key: content[key] for key in ("set", "method", "title", "data", "points")}
        return cls(**given, splits=tuple(SplitScores(**split) for split in content["splits"]))


Results = dict[str, dict[str, SetResult]]  # by set and method


def split_scores(target: Floats, means: Floats, variances: Floats) -> SplitScores:
    """Score a prediction.

    Args:
        target: (N,) test targets.
        means: (T, N) means of the mixture's components.
        variances: (T, N) their variances.

    Returns:
        All scores.
    """
    return SplitScores(
        mixture_log_likelihood(target, means, variances),
        matched_log_likelihood(target, means, variances),
        rmse(target, means),
    )
