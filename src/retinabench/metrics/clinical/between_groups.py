"""How far a rate differs between the groups of a column, and what to expect at a site that was not in the study.

The gap of K groups is the largest rate less the smallest. The intervals of the groups hold for all of them at once, so that the true gap
lies between the largest distance of two intervals that do not overlap and the distance of their outermost ends. The gap of sensitivity
and that of specificity together are the violation of *equalised odds*.

For sites, rates are taken as draws of one distribution, normal on the logit scale, of mean mu and std tau. With the estimate y_k of site k and its
variance v_k, weights w_k = 1 / (v_k + tau^2) and mu = sum w_k y_k / sum w_k:

    tau^2 solves sum w_k (y_k - mu)^2 = K - 1, or is 0             (Paule and Mandel)
    s^2 = sum w_k (y_k - mu)^2 / ((K - 1) sum w_k)                  (Hartung and Knapp; here at least 1 / sum w_k)
    a new site lies in mu +- t sqrt(tau^2 + s^2), t of K - 2 degrees of freedom

References:
    Debray et al., Transparent reporting of multivariable prediction models developed or validated using clustered data (TRIPOD-Cluster),
    BMJ 380:e071018 (2023); Riley, Higgins and Deeks, Interpretation of random effects meta-analyses, BMJ 342:d549 (2011); Paule and Mandel,
    J. Res. Natl. Bur. Stand. 87:377 (1982); Hartung and Knapp, Stat. Med. 20:3875 (2001).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtri, stdtrit

from retinabench.core.results import Document
from retinabench.metrics.proportions import Interval

Floats = NDArray[np.float64]
SITES = re.compile(
    r"(?i)(^|_)(site|cent(er|re)|clinic|hospital|institution|camera|device|country|region|programme)(_|s?$)"
)
FEWEST_SITES = 3


@dataclass(frozen=True)
class NewSite(Document):
    """The mean rate of K sites, the std of their true rates on the logit scale, and where the rate of a new site lies (95 %)."""

    sites: int
    mean: Interval
    tau: float
    new_site: Interval


@dataclass(frozen=True)
class Between(Document):
    """The gap of a rate between the groups of a column; `new_site` only for columns of sites with 3 or more usable groups."""

    column: str
    rate: str
    lowest: str
    highest: str
    gap: Interval
    new_site: NewSite | None = None


def between_groups(
    column: str, rate: str, together: Mapping[str, Interval], alone: Mapping[str, Interval] | None = None
) -> Between | None:
    """Compare the rate of the groups of a column; None for fewer than two groups.

    together: intervals that hold for all groups at once. alone: those of each group at 95 %, for a rate in [0, 1].
    """
    if len(together) < 2:
        return None
    ordered = sorted(together, key=lambda name: together[name].value)
    lows, highs = (np.array([getattr(one, end) for one in together.values()]) for end in ("low", "high"))
    lowest, highest = together[ordered[0]], together[ordered[-1]]
    gap = Interval(
        highest.value - lowest.value, max(0.0, float(lows.max() - highs.min())), float(highs.max() - lows.min())
    )
    new = None
    if alone is not None and SITES.search(column) and len(alone) >= FEWEST_SITES:
        new = new_site(list(alone.values()))
    return Between(column, rate, ordered[0], ordered[-1], gap, new)


def new_site(rates: Sequence[Interval]) -> NewSite:
    """Return what the rates of K sites, with their own 95 % intervals, say of a new site."""
    y, v = np.array([_on_logit_scale(one) for one in rates]).T
    tau2, mean, error = random_effects(y, v)
    k = len(y)
    of_mean, of_new = (
        float(stdtrit(k - 1, 0.975)) * error,
        float(stdtrit(k - 2, 0.975)) * math.hypot(math.sqrt(tau2), error),
    )
    shown = [Interval(*expit([mean, mean - half, mean + half]).tolist()) for half in (of_mean, of_new)]
    return NewSite(k, shown[0], math.sqrt(tau2), shown[1])


def random_effects(y: Floats, v: Floats) -> tuple[float, float, float]:
    """Return tau^2, mu and s of K estimates (K,) with variances (K,).

    >>> tau2, mean, error = random_effects(np.array([0.0, 1.0]), np.array([0.1, 0.1]))
    >>> round(tau2, 6), mean
    (0.4, 0.5)
    """

    def fit(tau2: float) -> tuple[float, float, float]:
        """The weighted squares about the mean, the mean, and the sum of the weights."""
        w = 1 / (v + tau2)
        mean = float(w @ y / w.sum())
        return float(w @ (y - mean) ** 2), mean, float(w.sum())

    free = len(y) - 1
    largest = float(np.square(y - y.mean()).sum()) + 1.0
    tau2 = float(brentq(lambda t: fit(t)[0] - free, 0.0, largest)) if fit(0.0)[0] > free else 0.0
    squares, mean, total = fit(tau2)
    return tau2, mean, math.sqrt(max(squares / free, 1.0) / total)


def _on_logit_scale(one: Interval) -> tuple[float, float]:
    """The logit of a rate and its variance, from its interval; a rate of 0 or 1 is that of as many images as its exact bound tells."""
    if 0 < one.value < 1:
        return float(logit(one.value)), float((logit(one.high) - logit(one.low)) / (2 * ndtri(0.975))) ** 2
    trials = math.log(0.025) / math.log(one.low if one.value == 1 else 1 - one.high)
    share = (trials * one.value + 0.5) / (trials + 1)
    return float(logit(share)), 1 / ((trials + 1) * share * (1 - share))
