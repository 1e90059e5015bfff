"""The diagnostics of a reference in function space, and the thresholds that it must reach to give a ranking.

Letters: K chains, T kept transitions, N test points, O predicted quantities (class probabilities, or mean and std).

A reference is 4 chains from draws of the prior. It passes with rank R-hat below 1.05 for 95 % of the predicted quantities, acceptance
between .5 and .99 and, within its error, twice the share of falling energies, standard errors below .03 (.05 of y), at most 1 % diverging trajectories, and
no change at half the step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from retinabench.fidelity.reference import diagnostics

Values = NDArray[np.float64]


POWER_80 = 0.84  # standard errors beyond a threshold at which a test finds a change four times in five


@dataclass(frozen=True)
class Thresholds:
    """What a reference must reach."""

    chains: int = 4
    rank_rhat: float = 1.05
    rank_rhat_share: float = 0.95
    acceptance: tuple[float, float] = (0.5, 0.99)
    energy: float = 4.0
    mcse: Mapping[str, float] = field(default_factory=lambda: {"categorical": 0.03, "gaussian": 0.05})
    half_step_z: float = 3.0
    half_step_share: float = 0.05
    diverged: float = 0.01
    diverged_earlier: float = 0.05
    dispersion: float = 1.0
    detectable: Mapping[str, float] = field(default_factory=lambda: {"categorical": 0.15, "gaussian": 0.15})


THRESHOLDS = Thresholds()


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Diagnostics of each predicted quantity, (N, O) each; `rhat` is the rank-normalised one."""

    rhat: Values
    split_rhat: Values
    ess_bulk: Values
    ess_tail: Values
    mcse: Values


def diagnose(predictions: NDArray[np.floating]) -> Diagnosis:
    """Return the diagnostics of predictions (T, K, N, O), which may be on disk: they are read in blocks."""
    transitions, chains, *shape = predictions.shape
    draws = predictions.reshape(transitions, chains, -1).transpose(1, 0, 2)
    names = ("rank_rhat", "split_rhat", "ess_bulk", "ess_tail", "mcse")
    return Diagnosis(*(getattr(diagnostics, name)(draws).reshape(shape) for name in names))


@dataclass(frozen=True)
class EnergyErrors:
    """Summary of the energy errors H' - H of proposals."""

    mean: float
    median: float
    sd: float
    diverged: float
    mean_exp: float
    acceptance: float
    falling: float
    gap: float


def energy(history: Values) -> EnergyErrors:
    """Summarise the energy errors of the kept transitions.

    In equilibrium the density of the errors obeys p(x) = exp(x) p(-x), as trajectories are reversible, so that the mean of
    exp(H - H') is 1 and the mean acceptance is twice the share of falling energies. The first mean depends on errors that
    are too rare to be observed once some trajectories diverge; the second is bounded, and is what is tested.

    References:
        Creutz 1988, "Global Monte Carlo algorithms for many-fermion systems".

    Shapes: `history` (T, 3, K).
    """
    errors = np.nan_to_num(history[:, 2].ravel(), nan=np.inf)
    weights = np.exp(-np.clip(errors, -700, None))
    difference = np.minimum(weights, 1) - 2 * (errors < 0)
    error = float(difference.std(ddof=1) / np.sqrt(len(difference)))
    near = errors[np.abs(errors) < 20]
    return EnergyErrors(
        mean=float(near.mean()) if len(near) else 0.0,
        median=float(np.median(errors)) if np.isfinite(np.median(errors)) else 1e9,
        sd=float(near.std()) if len(near) else 0.0,
        diverged=float(1 - len(near) / len(errors)),
        mean_exp=float(weights.mean()),
        acceptance=float(np.minimum(weights, 1).mean()),
        falling=float((errors < 0).mean()),
        gap=abs(float(difference.mean())) / max(error, 1e-12),
    )


@dataclass(frozen=True)
class HalfStep:
    """Comparison of the kept transitions with some at half the step."""

    transitions: float
    acceptance_before: float
    acceptance: float
    median_z: float
    beyond: float
    mean_difference: float
    detectable: float | None = None


def half_step(
    predictions: NDArray[np.floating],
    history: NDArray[np.floating],
    half: NDArray[np.floating],
    after: NDArray[np.floating],
    mcse: Values,
) -> HalfStep:
    """Compare the kept transitions with some at half the step.

    z is the difference of the two means in its standard error, for which both are taken to mix equally fast.

    Shapes: `predictions` (T, K, N, O), `history` (T, 3, K), `mcse` (N, O).
    """
    stretch = mcse * np.sqrt(len(predictions) / len(half))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.nan_to_num((_mean(half) - _mean(predictions)) / np.hypot(mcse, stretch))
    return HalfStep(
        transitions=float(len(half)),
        acceptance_before=float(history[:, 0].mean()),
        acceptance=float(after[:, 0].mean()),
        median_z=float(np.median(np.abs(z))),
        beyond=float((np.abs(z) > THRESHOLDS.half_step_z).mean()),
        mean_difference=float(np.abs(_mean(half) - _mean(predictions)).mean()),
        detectable=detectable(mcse, len(predictions) / len(half)),
    )


def detectable(mcse: Values, length: float) -> float:
    """Return the median change at half the step that is found with a power of .8.

    Shapes: `mcse` (N, O).
    """
    known = mcse[~np.isnan(mcse)]
    median = np.median(known) if known.size else np.nan
    return float(median * np.sqrt(1 + length) * (THRESHOLDS.half_step_z + POWER_80))


def dispersion(start: NDArray[np.floating], states: NDArray[np.floating]) -> float:
    """Return the median ratio of the std of the first predictions over chains to that of the kept states.

    R-hat can only find a region that some chain begins in: chains should begin farther apart than the posterior is wide.

    Shapes: `start` (K, N, O), `states` (T, K, N, O).
    """
    wide = start.std(axis=0, ddof=1, dtype=np.float64)
    posterior = states.std(axis=(0, 1), dtype=np.float64)
    moving = posterior > 1e-4  # an output that never moves has no width to compare with
    return float(np.median(wide[moving] / posterior[moving])) if moving.any() else 0.0


def share_below(rhat: Values, limit: float) -> float:
    """Return the share of values below the limit. NaN, the value of an output that never changes, counts as below."""
    return float(np.mean(np.isnan(rhat) | (rhat < limit)))


def summary(values: NDArray[np.floating]) -> dict[str, float]:
    """Return the least value, the median, the tails and the greatest value, for the metadata of a file."""
    finite = np.asarray(values, np.float64)[np.isfinite(values)]
    if not finite.size:
        return {}
    levels = {"least": 0, "q05": 0.05, "median": 0.5, "q95": 0.95, "greatest": 1}
    return {name: float(np.quantile(finite, level)) for name, level in levels.items()}


def _mean(predictions: NDArray[np.floating]) -> Values:
    return np.asarray(predictions.mean(axis=(0, 1), dtype=np.float64))
