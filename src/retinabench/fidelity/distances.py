"""Distances between predictive distributions, one value per test point, so that any of them can be resampled.

Letters: N test points, C classes, S and M posterior samples. Classification compares probabilities (N, C), regression
draws of y (N, S) with (N, M).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.core.random_streams import numpy_generator

Probabilities = NDArray[np.floating]
Values = NDArray[np.float64]


def agreement(probs: Probabilities, reference: Probabilities) -> Values:
    """Return 1 where both name the same class, else 0: (N, C), (N, C) -> (N,). Ties go to the first class."""
    _same_shape(probs, reference)
    return np.asarray(probs.argmax(axis=1) == reference.argmax(axis=1), np.float64)


def total_variation(probs: Probabilities, reference: Probabilities) -> Values:
    """Return ½ Σ_c |p_c - q_c| in [0, 1]: (N, C), (N, C) -> (N,)."""
    _same_shape(probs, reference)
    return np.asarray(np.abs(probs - reference).sum(axis=1) / 2, np.float64)


def wasserstein(draws: Probabilities, reference: Probabilities, order: int = 1) -> Values:
    """Return the Wasserstein distance of the given order between draws (N, S) and (N, M): (N,), in units of y.

    W_p = (∫ |F⁻¹(u) - G⁻¹(u)|^p du)^(1/p), exact for empirical distributions of any two sizes.
    """
    if len(draws) != len(reference):
        raise InputError(f"{len(draws)} rows of draws for {len(reference)} test points")
    left, right = np.sort(draws, axis=1), np.sort(reference, axis=1)
    s, m = left.shape[1], right.shape[1]
    # Both quantile functions are constant between the merged levels i/S and j/M; in units of 1/(S M) these are whole.
    levels = np.union1d(np.arange(s + 1) * m, np.arange(m + 1) * s)
    width = np.diff(levels) / (s * m)
    gaps = np.abs(left[:, levels[:-1] // m] - right[:, levels[:-1] // s])
    return np.asarray((gaps**order @ width) ** (1 / order), np.float64)


def of_others(chains: Probabilities, chain: int, likelihood: str) -> Probabilities:
    """Return what all chains but one predict: their mean (N, C) of (K, N, C) probabilities, or all their draws of y (N, M)."""
    others = np.delete(chains, chain, axis=0)
    return np.asarray(others.mean(axis=0) if likelihood == "categorical" else np.concatenate(list(others), axis=1))


Distance = Callable[[Probabilities, Probabilities], Values]
# By the target's likelihood: what the board ranks by, as the competition did, and the one that says how near a submission is.
RANKED: dict[str, dict[str, Distance]] = {
    "categorical": {"agreement": agreement, "total_variation": total_variation},
    "gaussian": {"wasserstein": wasserstein},
}
DISTANCE: dict[str, Distance] = {"categorical": total_variation, "gaussian": wasserstein}


def noise_floor(reference: Probabilities, order: int = 1) -> Values:
    """Return the Wasserstein distance between two random halves of the reference's draws (N, M): (N,).

    It is the score of a perfect method with M / 2 independent draws; smaller differences are noise. The draws of all chains are
    exchanged at random: halves of different chains would also differ by what the chains have not mixed.
    """
    half = reference.shape[1] // 2
    order_of_draws = numpy_generator(0, "exchangeable draws").permutation(reference.shape[1])
    one, other = order_of_draws[:half], order_of_draws[half : 2 * half]
    return wasserstein(reference[:, one], reference[:, other], order)


def entropy(probs: Probabilities) -> Values:
    """Return H(p) = -Σ_c p_c ln p_c in nats, with 0 ln 0 = 0: (..., C) -> (...)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(probs > 0, probs * np.log(probs), 0)
    return np.asarray(-terms.sum(axis=-1), np.float64)


def epistemic(samples: Probabilities) -> Values:
    """Return the mutual information of label and posterior, H(mean) - mean H, in nats: (S, N, C) -> (N,)."""
    return np.asarray(entropy(samples.mean(axis=0)) - entropy(samples).mean(axis=0), np.float64)


def pairwise_disagreement(samples: Probabilities) -> Values:
    """Return the chance that two different posterior samples name different classes: (S, N, C) -> (N,)."""
    s, n, classes = samples.shape
    votes = np.zeros((n, classes))
    for named in samples.argmax(axis=2):
        votes[np.arange(n), named] += 1
    return np.asarray(1 - (votes * (votes - 1)).sum(axis=1) / (s * (s - 1)))


def decision_regret(probs: Probabilities, reference: Probabilities, costs: Values) -> Values:
    """Return the excess cost of acting on `probs` instead of the reference, if the reference is right: (N,), >= 0.

    Both take the action of least expected cost, of `costs` (A, C), and the costs of both are expected under the reference.
    """
    _same_shape(probs, reference)
    charged = reference @ costs.T
    taken = (probs @ costs.T).argmin(axis=1)
    return np.asarray(charged[np.arange(len(probs)), taken] - charged.min(axis=1), np.float64)


def _same_shape(a: Probabilities, b: Probabilities) -> None:
    if a.shape != b.shape:
        raise InputError(f"predictions of shape {a.shape} for a reference of shape {b.shape}")
