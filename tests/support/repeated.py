"""Weighted images and the same images repeated, for tests of scores against other libraries."""

import numpy as np

from retinabench.metrics.weighted_images import Cases, Weighted


def weighted_and_repeated(seed=0, n=40, rows=4):
    """Return images with rows of whole-number weights, and for each row (label, prob, uncertainty, shifted) with images repeated.
    Probabilities and uncertainties have ties."""
    rng = np.random.default_rng(seed)
    label, prob = rng.integers(0, 2, n), rng.integers(1, 10, n) / 10
    uncertainty, shifted = rng.integers(0, 8, n) / 8, rng.random(n) < 0.4
    weight = rng.multinomial(n, np.full(n, 1 / n), rows)
    cases = Cases(label, prob, uncertainty, shifted)
    copies = [tuple(np.repeat(one, row) for one in (label, prob, uncertainty, shifted)) for row in weight]
    return Weighted(cases, weight[:, cases.order].astype(float)), copies
