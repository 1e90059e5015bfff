"""Sensitivity and specificity of a finite bank from the answers to some of its questions.

Of the N samples of a cell (a concept and a truth), n were asked about and k answered correctly. They were drawn at random
without replacement, so that the number of correct answers among the other N - n is

    right ~ BetaBinomial(N - n, a, b),    a = k + 1/2,  b = n - k + 1/2    (Jeffreys' prior).

The rate (k + right) / N is a property of the bank: its interval closes to a point once every sample was asked about (the
finite-population correction). Intervals are equal-tailed at 95 %; their ends are rounded outwards to attainable values.

The intervals are valid for strategies that draw at random *within* a cell and whose choice of the cell does not depend on
the answers (``random``, ``precision``). If it does (``uncertainty``), the posterior is the same, but the interval covers the
rate slightly less often than stated. Accuracy over both truths weights the two cells by their sizes, since questions are not
asked in that proportion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Floats = NDArray[np.float64]
EXACT = 20_000  # samples left in a cell, beyond which a beta distribution of the same moments stands for the beta-binomial


@dataclass(frozen=True)
class Rate:
    """A rate of a bank with its 95 % interval.

    Args:
        value: Posterior mean; None if no sample was asked about.
        low: Lower end of the interval; None if the bank has no such sample.
        high: Upper end of the interval; None if the bank has no such sample.
        asked: Samples asked about; None for the accuracy, which joins two cells.
        of: Samples in the bank; None for the accuracy.
        why: Reason why ``value`` is None.
    """

    value: float | None
    low: float | None
    high: float | None
    asked: int | None = None
    of: int | None = None
    why: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON content; ``asked``, ``of`` and ``why`` are left out where they are None."""
        found: dict[str, Any] = {"value": self.value, "low": self.low, "high": self.high}
        optional = {"asked": self.asked, "of": self.of, "why": self.why}
        return found | {key: value for key, value in optional.items() if value is not None}


def moments(right: Any, asked: Any, of: Any) -> tuple[Floats, Floats]:
    """Return posterior mean and variance of the rates of cells.

    mean = (k + r p) / N, variance = r p (1 - p) (a + b + r) / (a + b + 1) / N^2, with r = N - n and p = a / (a + b).

    Args:
        right: Correct answers k, any shape.
        asked: Samples asked about n, the same shape.
        of: Samples N of the cell, the same shape.

    Returns:
        Mean and variance, each of that shape.
    """
    k, n, size = (np.asarray(values, np.float64) for values in (right, asked, of))
    total, rest = n + 1, size - n
    p = (k + 0.5) / total
    variance = rest * p * (1 - p) * (total + rest) / (total + 1) / np.maximum(size, 1) ** 2
    return np.asarray((k + rest * p) / np.maximum(size, 1)), np.asarray(variance)


def rate(right: int, asked: int, of: int, level: float = 0.95) -> Rate:
    """Return the rate of one cell.

    Args:
        right: Correct answers.
        asked: Samples asked about.
        of: Samples of the cell.
        level: Coverage of the interval.

    Returns:
        The rate with its interval.

    References:
        Gelman et al., Bayesian Data Analysis, 3rd ed. (2013), sections 2.4 and 8.3.
    """
    if of == 0:
        return Rate(None, None, None, asked, of, "the bank has no such sample")
    if asked == 0:
        return Rate(None, 0.0, 1.0, asked, of, "no such sample was asked")
    rest, a, b = of - asked, right + 0.5, asked - right + 0.5
    tail = (1 - level) / 2
    if rest <= EXACT:
        below = np.minimum(np.cumsum(_beta_binomial(rest, a, b)), 1.0)
        low, high = (int(np.searchsorted(below, q)) for q in (tail, 1 - tail))
        ends = [(right + min(end, rest)) / of for end in (low, high)]
    else:
        mean, variance = moments(right, asked, of)
        ends = _beta_ends(float(mean), float(variance), right, asked, of, tail)
    return Rate(float(moments(right, asked, of)[0]), ends[0], ends[1], asked, of)


def accuracy(right: NDArray[np.int64], asked: NDArray[np.int64], of: NDArray[np.int64]) -> Rate:
    """Return the accuracy of a concept: the rates of its two cells weighted by the cells' sizes.

    The 95 % interval is that of the beta distribution with the mean and variance of the posterior.

    Args:
        right: Correct answers for truth 0 and 1, (2,).
        asked: Samples asked about, (2,).
        of: Samples of the cells, (2,).

    Returns:
        The accuracy with its interval.
    """
    if (asked[of > 0] == 0).any():
        cells = " and ".join(
            name for name, n, size in zip(("negative", "positive"), asked, of, strict=True) if size and not n
        )
        return Rate(None, 0.0, 1.0, why=f"no {cells} sample was asked")
    mean, variance = moments(right, asked, of)
    weight = of / of.sum()
    value, total_variance = float(weight @ mean), float(weight**2 @ variance)
    low, high = _beta_ends(value, total_variance, int(right.sum()), int(asked.sum()), int(of.sum()), 0.025)
    return Rate(value, low, high)


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
