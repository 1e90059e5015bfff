"""Whether draws have the moments of a known density, and what an effective draw cost.

Of each quantity q with true mean μ and std σ, draws (K chains of T) give z = (q - μ) / σ and the biases

    of the mean       mean z, in posterior stds              of the variance    mean z² - 1, in posterior variances

about the true mean both. In units of its standard error s / √ESS, s the true std of z (1) or of z², ESS the effective sample size for that
mean, a bias is the `z` of the moment; the true std keeps draws that miss a tail from hiding it. The p-values of all moments, by Student's
t with ESS - 1 degrees of freedom, are multiplied by their number. Below `LEVEL` the draws are biased; moments of fewer than `LEAST` effective
draws do not count, since of these the ESS itself is unsure. Else the draws are unbiased as far as they can show, unless there are such
moments, or chains, or halves of one, disagree: then they can say nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from retinabench.core.errors import InputError
from retinabench.core.results import Document
from retinabench.fidelity.densities.density import KnownDensity
from retinabench.fidelity.densities.functions import Floats
from retinabench.fidelity.reference.convergence import POWER_80, THRESHOLDS, ess_bulk, ess_mean, rank_rhat

LEVEL = 0.001
LEAST = 100  # effective draws of every moment
FEWEST = 8  # draws of a chain

Verdict = Literal["biased", "unbiased", "too few draws"]


@dataclass(frozen=True)
class Moments(Document):
    """What draws say of a density: absolute biases over coordinates, the worst z and its moment, effective draws, and the conclusion."""

    _also = ("verdict", "conclusion", "ess_per_gradient")

    draws: int
    gradients: float
    bias_of_mean: float  # of the worst coordinate
    bias_of_variance: float
    mean_bias_of_mean: float
    mean_bias_of_variance: float
    z: float
    moment: str
    bias: float
    p: float
    ess_bulk: float
    fewest: float
    fewest_of: str
    rhat: float
    detectable: float
    modes: tuple[float, ...] = ()

    @property
    def ess_per_gradient(self) -> float:
        """Effective draws of the slowest quantity, bulk, per evaluation of the density."""
        return self.ess_bulk / self.gradients if self.gradients else math.nan

    @property
    def verdict(self) -> Verdict:
        if self.p < LEVEL:
            return "biased"
        return "unbiased" if self.fewest >= LEAST and self.rhat <= THRESHOLDS.rank_rhat else "too few draws"

    @property
    def conclusion(self) -> str:
        """What a reader concludes, in a sentence."""
        worst = f"z of {self.z:.1f} on the {self.moment}"
        if self.verdict == "biased":
            return f"{worst} (bias {self.bias:+.2g}): the draws are biased"
        if self.verdict == "unbiased":
            return (
                f"unbiased as far as {self.fewest:,.0f} effective draws of {self.fewest_of} can show; "
                f"a bias of {self.detectable:.2g} std would be seen ({worst})"
            )
        few = f"{self.fewest:,.0f} effective draws of {self.fewest_of}, R-hat {self.rhat:.2f}"
        return f"too few draws to tell a bias ({few}; wanted are {LEAST}, {THRESHOLDS.rank_rhat:g}; {worst})"


def checked_draws(draws: ArrayLike, dimension: int) -> Floats:
    """Return draws (K, T, P) of K chains; one chain may be (T, P)."""
    w = np.asarray(draws, np.float64)
    w = w[None] if w.ndim == 2 else w
    if w.ndim != 3 or w.shape[2] != dimension or w.shape[1] < FEWEST or not len(w) or not np.isfinite(w).all():
        raise InputError(
            f"draws of shape {np.shape(draws)}: needed are finite numbers (chains, draws, {dimension}) or (draws, "
            f"{dimension}), at least {FEWEST} draws of each chain"
        )
    return w


def moments_of(draws: ArrayLike, known: KnownDensity, gradients: float) -> Moments:
    """Compare draws (K, T, P), or (T, P) of one chain, with the truth."""
    w = checked_draws(draws, known.dimension)
    truth = known.truth
    with np.errstate(over="ignore", invalid="ignore"):
        z = (known.quantities(w) - truth.mean) / truth.std
    if not (np.abs(z) < 1e100).all():
        raise InputError(f"the draws are so far from '{known.name}' that their moments overflow")
    values = [z, z * z - 1]
    unit = [np.ones_like(truth.std), truth.of_squares]
    labels = [*(f"mean of {name}" for name in known.labels), *(f"variance of {name}" for name in known.labels)]
    shares: tuple[float, ...] = ()
    if known.mode_of is not None:
        second = known.mode_of(w)
        share = float(second.mean())
        shares, rare = (1 - share, share), int(np.argmin(known.modes))
        values.append(((second if rare else 1 - second) - known.modes[rare])[..., None])
        unit.append(np.array([math.sqrt(math.prod(known.modes))]))
        labels.append(f"weight of mode {rare + 1}")
    every = np.concatenate(values, axis=-1)
    bias, ess = every.mean(axis=(0, 1)), ess_mean(every)
    scores = bias / np.concatenate(unit) / np.sqrt(1 / ess + truth.error**2)
    p = np.where(ess < LEAST, 1.0, 2 * stats.t.sf(np.abs(scores), np.maximum(ess - 1, 1)))
    worst, slowest, tests = int(np.lexsort((-np.abs(scores), p))[0]), int(np.argmin(ess)), len(p)
    of_mean, of_variance = np.abs(np.split(bias[: 2 * len(known.labels)], 2))
    return Moments(
        draws=w.shape[0] * w.shape[1], gradients=float(gradients), bias_of_mean=float(of_mean.max()),
        bias_of_variance=float(of_variance.max()), mean_bias_of_mean=float(of_mean.mean()),
        mean_bias_of_variance=float(of_variance.mean()), z=float(scores[worst]), moment=labels[worst], bias=float(bias[worst]),
        p=min(1.0, tests * float(p[worst])), ess_bulk=float(ess_bulk(z).min()), fewest=float(ess[slowest]),
        fewest_of=f"the {labels[slowest]}", rhat=float(np.nan_to_num(rank_rhat(z), nan=1.0).max()),
        detectable=float((stats.norm.isf(LEVEL / 2 / tests) + POWER_80) / math.sqrt(ess[slowest])), modes=shares,
    )  # fmt: skip
