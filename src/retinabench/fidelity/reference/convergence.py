"""May a reference be trusted? Its diagnostics in function space, and thresholds that it can fail.

Letters: K chains, T kept transitions, N test points, O predicted quantities (class probabilities, or mean and deviation).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.fidelity.reference import diagnostics

Values = NDArray[np.float64]

# What a reference must reach. The rest is recorded for information.
THRESHOLDS: dict[str, Any] = {
    "chains": 4,  # at least
    "rank_rhat": 1.05,  # below which ...
    "rank_rhat_share": 0.95,  # ... this share of the predicted quantities lies
    "acceptance": [0.5, 0.99],  # of every chain: beyond, the step is too large, or wastefully small
    "energy": 4.0,  # standard errors by which the mean acceptance may miss twice the share of falling energies
    "mcse": {
        "categorical": 0.03,
        "gaussian": 0.05,
    },  # 95 % of all standard errors; the latter in deviations of y
    "half_step_z": 3.0,  # standard errors by which predictions may move at half the step ...
    "half_step_share": 0.05,  # ... beyond which this share of them may lie
}


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """One value per predicted quantity, (N, O) each."""

    rhat: Values
    split_rhat: Values
    ess_bulk: Values
    ess_tail: Values
    mcse: Values


def diagnose(predictions: NDArray[np.floating]) -> Diagnosis:
    """(T, K, N, O), on disk or not, -> the diagnostics, worked off in blocks. `rhat` is the rank-normalised one."""
    transitions, chains, *shape = predictions.shape
    draws = predictions.reshape(transitions, chains, -1).transpose(1, 0, 2)
    names = ("rank_rhat", "split_rhat", "ess_bulk", "ess_tail", "mcse")
    return Diagnosis(*(getattr(diagnostics, name)(draws).reshape(shape) for name in names))


def energy(history: Values) -> dict[str, float]:
    """Summarise H' - H of the kept part, history (T, 3, K).

    In equilibrium the density of the errors obeys p(x) = exp(x) p(-x), as trajectories are reversible, so that the mean of
    exp(H - H') is 1 (Creutz 1988) and the mean acceptance is twice the share of falling energies. The first mean hangs
    on errors that are too rare to be seen once some trajectories diverge; the second is bounded, and is what is tested:
    `gap` is its distance in standard errors. An error that is no number counts as infinite.
    """
    errors = np.nan_to_num(history[:, 2].ravel(), nan=np.inf)
    weights = np.exp(-np.clip(errors, -700, None))
    difference = np.minimum(weights, 1) - 2 * (errors < 0)
    error = float(difference.std(ddof=1) / np.sqrt(len(difference)))
    near = errors[np.abs(errors) < 20]
    return {
        "mean": float(near.mean()) if len(near) else 0.0,
        "median": float(np.median(errors)) if np.isfinite(np.median(errors)) else 1e9,
        "sd": float(near.std()) if len(near) else 0.0,
        "diverged": float(1 - len(near) / len(errors)),
        "mean_exp": float(weights.mean()),
        "acceptance": float(np.minimum(weights, 1).mean()),
        "falling": float((errors < 0).mean()),
        "gap": abs(float(difference.mean())) / max(error, 1e-12),
    }


def half_step(
    predictions: NDArray[np.floating],
    history: Values,
    half: NDArray[np.floating],
    after: Values,
    mcse: Values,
) -> dict[str, float]:
    """Compare the kept part with a stretch at half the step: (T, K, N, O), (T, 3, K), and the same of the stretch.

    z: the difference of the two means, in its standard error; the stretch is taken to mix as fast per transition as the
    kept part, whose `mcse` (N, O) is known.
    """
    stretch = mcse * np.sqrt(len(predictions) / len(half))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.nan_to_num((_mean(half) - _mean(predictions)) / np.hypot(mcse, stretch))
    return {
        "transitions": float(len(half)),
        "acceptance_before": float(history[:, 0].mean()),
        "acceptance": float(after[:, 0].mean()),
        "median_z": float(
            np.median(np.abs(z))
        ),  # 0.67 where nothing changed; probabilities near 0 have heavy tails
        "beyond": float((np.abs(z) > THRESHOLDS["half_step_z"]).mean()),
        "mean_difference": float(np.abs(_mean(half) - _mean(predictions)).mean()),
    }


def verdict(
    likelihood: str, chains: int, found: Diagnosis, acceptance: Values, errors: Mapping[str, float],
    half: Mapping[str, float],
) -> list[str]:  # fmt: skip
    """Return why a reference is not good enough, in sentences; [] where it is. acceptance (K,)."""
    limit = THRESHOLDS
    why = []
    if chains < limit["chains"]:
        why.append(f"{chains} chains; at least {limit['chains']} are needed to tell whether they agree")
    share = share_below(found.rhat, limit["rank_rhat"])
    if share < limit["rank_rhat_share"]:
        why.append(
            f"the chains disagree: R-hat is below {limit['rank_rhat']} for {share:.1%} of the predictions, not for "
            f"{limit['rank_rhat_share']:.0%}; keep more transitions"
        )
    low, high = limit["acceptance"]
    for chain, rate in enumerate(acceptance):
        if not low <= rate <= high:
            hint = "smaller" if rate < low else "larger"
            why.append(f"chain {chain} accepts {rate:.0%} of its proposals; a {hint} step is needed")
    if errors["gap"] > limit["energy"]:
        why.append(
            f"{errors['acceptance']:.1%} of the proposals are accepted, though {errors['falling']:.1%} lower the energy: a "
            f"chain in equilibrium accepts twice as many ({errors['gap']:.1f} standard errors off); burn in longer"
        )
    worst = float(np.nanquantile(found.mcse, 0.95))
    if worst > limit["mcse"][likelihood]:
        why.append(
            f"the predictions are known to {worst:.3f} (95 % of their standard errors), not to {limit['mcse'][likelihood]}"
        )
    if half["acceptance"] < half["acceptance_before"] - 0.05:
        why.append("half the step is accepted less often: the density is not smooth at this precision")
    if half["beyond"] > limit["half_step_share"]:
        why.append(
            f"at half the step {half['beyond']:.1%} of the predictions move by more than {limit['half_step_z']:.0f} "
            "standard errors: the step is too large"
        )
    return why


def share_below(rhat: Values, limit: float) -> float:
    """Return the share below the limit. NaN, of an output that no chain ever moves, counts as below."""
    return float(np.mean(np.isnan(rhat) | (rhat < limit)))


def summary(values: NDArray[np.floating]) -> dict[str, float]:
    """Return least value, quartiles and tails, for a file's metadata."""
    finite = np.asarray(values, np.float64)[np.isfinite(values)]
    if not finite.size:
        return {}
    levels = {"least": 0, "q05": 0.05, "median": 0.5, "q95": 0.95, "greatest": 1}
    return {name: float(np.quantile(finite, level)) for name, level in levels.items()}


def _mean(predictions: NDArray[np.floating]) -> Values:
    return np.asarray(predictions.mean(axis=(0, 1), dtype=np.float64))
