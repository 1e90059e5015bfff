"""How far a rate differs between the groups of a column, and what to expect at a site that was not in the study.

The gap of K groups is the largest rate less the smallest. The intervals of the groups hold for all of them at once, so that the true gap
lies between the largest distance of two intervals that do not overlap and the distance of their outermost ends. The gap of sensitivity
and that of specificity together are the violation of *equalised odds*.

For sites, rates are taken as draws of one distribution, normal on the logit scale, of mean mu and std tau. Site k has n_k images, the effective number
that its interval tells, and y_k of them are successes. With a flat prior of mu, and that of tau half-normal of scale 1, the posterior is

    p(mu, tau | y) ~ exp(-tau^2 / 2) prod_k integral of Binomial(y_k; n_k, expit(x)) Normal(x; mu, tau^2) dx

The rate of a new site has the quantiles of the mixture of Normal(mu, tau^2) over it, that of the mean those of mu. Unlike a normal model of the sites' logits it needs
no correction where a site has no error: with fewer than twenty errors per site, the intervals of such models held the rate of a new site in as few as 14 % of
simulated studies.

References:
    Debray et al., Transparent reporting of multivariable prediction models developed or validated using clustered data (TRIPOD-Cluster),
    BMJ 380:e071018 (2023); Riley, Higgins and Deeks, Interpretation of random effects meta-analyses, BMJ 342:d549 (2011); Stijnen, Hamza and
    Özdemir, Random effects meta-analysis of event outcome in the framework of the generalized linear mixed model, Stat. Med. 29:3046 (2010); Röver et
    al., On weakly informative prior distributions for the heterogeneity parameter in Bayesian random-effects meta-analysis, Res. Synth. Methods 12:448 (2021).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, log_expit, logit, ndtri

from retinabench.core.results import Document
from retinabench.metrics.proportions import Interval

SITES = re.compile(
    r"(?i)(^|_)(site|cent(er|re)|clinic|hospital|institution|camera|device|country|region|programme)(_|s?$)"
)
FEWEST_SITES = 3


@dataclass(frozen=True)
class NewSite(Document):
    """The mean rate of K sites, the std of their true rates on the logit scale (the posterior median), and where the rate of a new site lies (95 %)."""

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
    trials = np.array([_trials(one) for one in rates])
    right = trials * [one.value for one in rates]
    centre = float(logit((right.sum() + 0.5) / (trials.sum() + 1)))
    x = centre + np.linspace(-8, 8, 641)
    log = right[:, None] * log_expit(x) + (trials - right)[:, None] * log_expit(-x)
    likelihood = np.exp(log - log.max(axis=1, keepdims=True))
    steps = np.linspace(-1, 1, 81)
    mu, tau = centre + 4 * steps * np.abs(steps), 3 * np.linspace(0.09, 1, 40) ** 2  # finer near the centre, and near 0
    density = np.exp(-0.5 * ((x - mu[:, None, None]) / tau[:, None]) ** 2)
    density /= density.sum(axis=-1, keepdims=True)
    log_posterior = np.log(np.maximum(density @ likelihood.T, 1e-300)).sum(axis=-1) - tau**2 / 2
    posterior = np.exp(log_posterior - log_posterior.max()) * np.gradient(mu)[:, None] * np.gradient(tau)
    posterior /= posterior.sum()
    of_mean, of_new = posterior.sum(axis=1), np.einsum("mt,mtx->x", posterior, density)
    mean = float(expit(of_mean @ mu))
    ends = [
        expit(np.interp((0.025, 0.975), np.cumsum(chance) - chance / 2, at)).tolist()
        for chance, at in ((of_mean, mu), (of_new, x))
    ]
    of_tau = posterior.sum(axis=0)
    middle = float(np.interp(0.5, np.cumsum(of_tau) - of_tau / 2, tau))
    return NewSite(len(rates), Interval(mean, *ends[0]), middle, Interval(mean, *ends[1]))


def _trials(one: Interval) -> float:
    """The number of images that would have the interval of a rate; of a rate of 0 or 1, the exact bound."""
    if 0 < one.value < 1:
        width = float(logit(one.high) - logit(one.low)) / (2 * float(ndtri(0.975)))
        return 1 / (width**2 * one.value * (1 - one.value))
    return math.log(0.025) / math.log(one.low if one.value == 1 else 1 - one.high)
