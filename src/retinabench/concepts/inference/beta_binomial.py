"""Sensitivity and specificity of a finite bank from some of its questions: the calibrated companion of the Gaussian process.

Of the N samples of a cell (a concept and a truth), n were asked, k answered rightly. Drawn at random without replacement, they
leave for the N - n others: right ~ BetaBinomial(N - n, a, b), a = k + 1/2, b = n - k + 1/2 (Jeffreys' prior). The rate
(k + right) / N is a property of the bank, so its interval closes to a point when all were asked: the finite-population correction.
The interval is equal-tailed at 95 %, its ends taken outwards to attained values.

Valid where the strategy draws at random *within* the cell, and how often a cell is asked does not depend on its answers (random,
precision). Where it does (uncertainty), the posterior is the same, but its interval covers only nearly as often as it says.
Accuracy over both truths weighs the two cells by their sizes, as the questions were not drawn in proportion.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Floats = NDArray[np.float64]
EXACT = 20_000  # samples left in a cell, beyond which a beta distribution of the same moments stands for the beta-binomial


def moments(right: Any, asked: Any, of: Any) -> tuple[Floats, Floats]:
    """Posterior mean and variance of the rate of cells, arrays of one shape: k right of n asked, N in the cell.

    mean = (k + r p) / N, variance = r p (1 - p) (a + b + r) / (a + b + 1) / N^2, with r = N - n and p = a / (a + b).
    """
    k, n, size = (np.asarray(values, np.float64) for values in (right, asked, of))
    total, rest = n + 1, size - n
    p = (k + 0.5) / total
    variance = rest * p * (1 - p) * (total + rest) / (total + 1) / np.maximum(size, 1) ** 2
    return np.asarray((k + rest * p) / np.maximum(size, 1)), np.asarray(variance)


def rate(right: int, asked: int, of: int, level: float = 0.95) -> dict[str, Any]:
    """Value and interval of the rate of one cell, as the examination's JSON shows it."""
    counts = {"asked": asked, "of": of}
    if of == 0:
        return {"value": None, "low": None, "high": None, **counts, "why": "the bank has no such sample"}
    if asked == 0:
        return {"value": None, "low": 0.0, "high": 1.0, **counts, "why": "no such sample was asked"}
    rest, a, b = of - asked, right + 0.5, asked - right + 0.5
    tail = (1 - level) / 2
    if rest <= EXACT:
        below = np.minimum(np.cumsum(_beta_binomial(rest, a, b)), 1.0)
        low, high = (int(np.searchsorted(below, q)) for q in (tail, 1 - tail))
        ends = [(right + min(end, rest)) / of for end in (low, high)]
    else:
        mean, variance = moments(right, asked, of)
        ends = _beta_ends(float(mean), float(variance), right, asked, of, tail)
    return {"value": float(moments(right, asked, of)[0]), "low": ends[0], "high": ends[1], **counts}


def accuracy(
    right: NDArray[np.int64], asked: NDArray[np.int64], of: NDArray[np.int64], level: float = 0.95
) -> dict[str, Any]:
    """Share of right answers over both truths of a concept, arrays (2,): the cells' rates weighed by the cells' sizes.

    The interval is that of the beta distribution with the posterior's mean and variance.
    """
    if (asked[of > 0] == 0).any():
        cells = " and ".join(
            name for name, n, size in zip(("negative", "positive"), asked, of, strict=True) if size and not n
        )
        return {"value": None, "low": 0.0, "high": 1.0, "why": f"no {cells} sample was asked"}
    mean, variance = moments(right, asked, of)
    weight = of / of.sum()
    value, spread = float(weight @ mean), float(weight**2 @ variance)
    low, high = _beta_ends(value, spread, int(right.sum()), int(asked.sum()), int(of.sum()), (1 - level) / 2)
    return {"value": value, "low": low, "high": high}


def _beta_binomial(trials: int, a: float, b: float) -> Floats:
    """(trials + 1,) probabilities of 0 … trials successes."""
    k = np.arange(trials + 1)
    choose = special.gammaln(trials + 1) - special.gammaln(k + 1) - special.gammaln(trials - k + 1)
    return np.asarray(np.exp(choose + special.betaln(k + a, trials - k + b) - special.betaln(a, b)))


def _beta_ends(mean: float, variance: float, right: int, asked: int, of: int, tail: float) -> list[float]:
    """Ends of the central interval of the beta distribution with this mean and variance, on the range still possible.

    Taken outwards to whole samples, and to the end of the range where all answers agree: no sample speaks against it.
    """
    least, rest = right / of, (of - asked) / of
    if rest == 0:
        return [mean, mean]
    m, v = (mean - least) / rest, variance / rest**2
    strength = m * (1 - m) / v - 1
    low, high = (least + rest * stats.beta.ppf(q, m * strength, (1 - m) * strength) for q in (tail, 1 - tail))
    low = least if right == 0 else float(np.floor(low * of + 1e-9) / of)
    high = least + rest if right == asked else float(np.ceil(high * of - 1e-9) / of)
    return [low, high]
