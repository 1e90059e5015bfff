"""Evidence that may be looked at at any time: a test by betting, with bets that start at every time.

Let x_1, x_2, … >= -1 be observed one after the other. The hypothesis is E[x_t | past] <= 0 for every t: under it, no
bets on positive x have an expected gain. Staking a share lambda < 1 from time k on gives the wealth prod_{s > k} (1 + lambda x_s).
The wealth here is the average over shares lambda and starting times k,

    W_t = mean_lambda [ sum_{k < t} w_k prod_{k < s <= t} (1 + lambda x_s) + r_t ],    r_t = 1 - sum_{k < t} w_k,

a nonnegative supermartingale that starts at 1. By Ville's inequality P(W_t >= 1 / level for some t) <= level: an alarm at
1 / level is raised at most at the stated rate, however often and for however long one looks. The weights w_k = r_k - r_{k+1} with
r_k = 1 / log2(k + 3) for k >= 1 and r_0 = 1 put one half on the start, and fall slowly enough that a change after k steps costs
only about log(k) + 2 log(log(k)) of the logarithm of the wealth.

References:
    Ville, Étude critique de la notion de collectif (1939). Waudby-Smith and Ramdas, Estimating means of bounded random variables
    by betting, J. R. Stat. Soc. B 86:1 (2024). Shin, Ramdas and Rinaldo, E-detectors: a nonparametric framework for sequential
    change detection, New England J. Stat. Data Sci. 2:229 (2024). Vovk, Nouretdinov and Gammerman, Testing exchangeability
    on-line, ICML (2003).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError

Floats = NDArray[np.float64]
BETS: Floats = np.asarray(0.5 ** np.arange(1, 9), np.float64)
"""Shares of the wealth that are staked; the best one against a share p of errors at goal a is (p - a) / (1 - a)."""


def log_wealth(increments: ArrayLike) -> Floats:
    """Return the logarithm of the wealth after each increment.

    Shapes: `increments` (T,).
    """
    x = np.asarray(increments, np.float64)
    if x.size and not x.min() >= -1 - 1e-12:
        raise InputError(f"an increment is {x.min()}, below -1")
    steps = x.shape[-1]
    remaining = np.append(1.0, 1 / np.log2(np.arange(1, steps + 1) + 3.0))
    weight = np.log(-np.diff(remaining))
    total = np.full(x.shape, -np.inf)
    for bet in BETS:
        gains = np.cumsum(np.log1p(bet * x), axis=-1)
        before = np.concatenate([np.zeros((*x.shape[:-1], 1)), gains[..., :-1]], axis=-1)
        started = gains + np.logaddexp.accumulate(weight - before, axis=-1)
        np.logaddexp(total, np.logaddexp(started, np.log(remaining[1:])), out=total)
    return np.asarray(total - np.log(len(BETS)))


def mean_log_wealth(streams: ArrayLike) -> Floats:
    """Return the logarithm of the mean of R wealths: (R, T) to (T,); again an e-process."""
    each = np.asarray(streams, np.float64)
    return np.asarray(np.logaddexp.reduce(each, axis=0) - np.log(len(each)))


def first_alarm(log_wealths: ArrayLike, level: float) -> int | None:
    """Return the first step (from 0) at which the wealth reaches 1 / level, or None."""
    reached = np.flatnonzero(np.asarray(log_wealths) >= -np.log(level))
    return int(reached[0]) if len(reached) else None


def conformal_p_values(reference: ArrayLike, values: ArrayLike, seed: int = 0) -> Floats:
    """Return the conformal p-value of each value among the reference and all values before it.

    p_t = (#{earlier > v_t} + U_t (#{earlier = v_t} + 1)) / (number of earlier values + 1) with U_t uniform. If reference and
    values are exchangeable, the p-values are independent and uniform on (0, 1), exactly.

    Shapes: `reference` (M,), `values` (T,), returns (T,).
    """
    earlier = np.sort(np.asarray(reference, np.float64)).tolist()
    sequence = np.asarray(values, np.float64).tolist()
    uniform = np.random.default_rng([seed, 0xC0DF]).random(len(sequence)).tolist()
    p_values = []
    for value, u in zip(sequence, uniform, strict=True):
        low, high = bisect_left(earlier, value), bisect_right(earlier, value)
        p_values.append((len(earlier) - high + u * (high - low + 1)) / (len(earlier) + 1))
        earlier.insert(high, value)
    return np.array(p_values)


def drift_log_wealth(p_values: ArrayLike) -> Floats:
    """Return the logarithm of the wealth of bets against independent uniform p-values.

    A quarter each is bet on p being high, low, extreme and central. Their increments 2p - 1, 1 - 2p,
    12 (p - 1/2)^2 - 1 and (1 - 12 (p - 1/2)^2) / 2 have mean 0 for uniform p and are at least -1.

    Shapes: `p_values` (T,), returns (T,).
    """
    p = np.asarray(p_values, np.float64)
    line, bowl = 2 * p - 1, 12 * (p - 0.5) ** 2 - 1
    return mean_log_wealth(log_wealth(np.stack([line, -line, bowl, -bowl / 2])))
