"""Predictions and histories of chains that sample what they should."""

import numpy as np

T, K, N, C = 150, 4, 40, 5


def predictions(seed=0, transitions=T):
    random = np.random.default_rng(seed)
    logits = random.normal(size=(transitions, K, N, C)) + 2 * np.random.default_rng(99).normal(size=(N, C))
    exp = np.exp(logits)
    return (exp / exp.sum(axis=3, keepdims=True)).astype(np.float32)


def history(seed=0, transitions=T, sd=0.7, shift=0.0):
    """Errors of an equilibrium: H' - H ~ N(s² / 2, s²), for which the mean of exp(H - H') is 1."""
    errors = np.random.default_rng(seed).normal(sd**2 / 2 + shift, sd, (transitions, K))
    acceptance = np.minimum(1, np.exp(-errors))
    return np.stack([acceptance, acceptance > 0.5, errors], axis=1)
