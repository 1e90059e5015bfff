"""Which thresholds of convergence chains miss, in words."""

from __future__ import annotations

import numpy as np

from retinabench.fidelity.reference.convergence import (
    THRESHOLDS,
    Diagnosis,
    EnergyErrors,
    HalfStep,
    Values,
    share_below,
)


def later_verdict(
    likelihood: str, errors: EnergyErrors, found_change: float, width: float | None
) -> list[str]:
    """Return the reasons by the thresholds that version 0.1 did not have, in sentences."""
    limit, why = THRESHOLDS, []
    if not errors.diverged <= limit.diverged:
        why.append(
            f"{errors.diverged:.1%} of the trajectories diverge, more than {limit.diverged:.0%}: where the posterior is "
            "narrow the step is too large; use a smaller one"
        )
    if not found_change <= limit.detectable[likelihood]:
        why.append(
            f"the comparison with half the step would find a change of {found_change:.2g} four times in five, not one of "
            f"{limit.detectable[likelihood]:g}; keep more transitions"
        )
    if width is not None and not width >= limit.dispersion:
        why.append(
            f"the chains start {width:.2f} times as far apart as the posterior is wide; over-dispersed starts are needed"
        )
    return why


def verdict(
    likelihood: str, chains: int, found: Diagnosis, acceptance: Values, errors: EnergyErrors, half: HalfStep
) -> list[str]:
    """Return the reasons why a reference is not good enough, in sentences; an empty list where it is.

    Shapes: `acceptance` (K,).
    """
    limit = THRESHOLDS
    why = []
    if chains < limit.chains:
        why.append(f"{chains} chains; at least {limit.chains} are needed to tell whether they agree")
    share = share_below(found.rhat, limit.rank_rhat)
    if share < limit.rank_rhat_share:
        why.append(
            f"the chains disagree: R-hat is below {limit.rank_rhat} for {share:.1%} of the predictions, not for "
            f"{limit.rank_rhat_share:.0%}; keep more transitions"
        )
    low, high = limit.acceptance
    for chain, rate in enumerate(acceptance):
        if not low <= rate <= high:
            hint = "smaller" if rate < low else "larger"
            why.append(f"chain {chain} accepts {rate:.0%} of its proposals; a {hint} step is needed")
    if errors.gap > limit.energy:
        why.append(
            f"{errors.acceptance:.1%} of the proposals are accepted, though {errors.falling:.1%} lower the energy: a "
            f"chain in equilibrium accepts twice as many ({errors.gap:.1f} standard errors off); burn in longer"
        )
    known = found.mcse[~np.isnan(found.mcse)]  # NaN where no chain moves
    worst = float(np.quantile(known, 0.95)) if known.size else np.inf
    if worst > limit.mcse[likelihood]:
        why.append(
            f"the predictions are known to {worst:.3f} (95 % of their standard errors), not to {limit.mcse[likelihood]}"
        )
    if half.acceptance < half.acceptance_before - 0.05:
        why.append("half the step is accepted less often: the density is not smooth at this precision")
    if half.beyond > limit.half_step_share:
        why.append(
            f"at half the step {half.beyond:.1%} of the predictions move by more than {limit.half_step_z:.0f} "
            "standard errors: the step is too large"
        )
    return why
