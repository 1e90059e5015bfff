"""The verdict on a reference, from the arrays of its file and not from what the file says of itself.

A file that keeps the states of its chains is judged by them alone: every diagnostic is computed again. Earlier files keep the
diagnostics of each predicted quantity, the mean of each chain and some samples. Of them R-hat is computed again from these
means and samples, and the worse of it and the stated one counts; acceptance, energy errors and the comparison with half the
step can only be taken from their metadata. Thresholds that did not exist when they were made are reservations: such a
reference is provisional, and still ranks.

Letters: K chains, N test points, O predicted quantities, S samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from retinabench.fidelity.reference import convergence
from retinabench.fidelity.reference.arrays import ReferenceArrays
from retinabench.fidelity.reference.verdict import later_verdict, verdict

Verdict = Literal["passed", "provisional", "failed", "unverified"]
LACKING = (
    "it keeps too few states to compute its diagnostics again, so that acceptance, energy errors and the comparison with half the "
    "step stand on its metadata"
)
NO_STARTS = (
    "its chains started from half a draw of the prior each, nearer together than the posterior is wide"
)
_GRIDS = 1e-5  # greatest difference of probabilities between two grids
_LEAST_VARIANCE = 1e-8  # of a chain's states, above the rounding of float16 samples
_STATED_ERRORS = 4.0  # largest ratio of the variance of the chains' mean to the one stated


@dataclass(frozen=True)
class Judgement:
    """Why a reference gives no ranking, and what else is to be known of it, in sentences."""

    why: tuple[str, ...] = ()
    reservations: tuple[str, ...] = ()
    external: bool = False

    @property
    def verdict(self) -> Verdict:
        """The verdict in a word."""
        if self.external:
            return "unverified"
        return "failed" if self.why else "provisional" if self.reservations else "passed"


def judge(reference: ReferenceArrays) -> Judgement:
    """Return the judgement of a reference by its arrays."""
    if reference.external:
        return Judgement(reservations=("it was imported: its convergence was not checked",), external=True)
    if reference.about.kind == "quadrature":
        return _of_grids(reference)
    likelihood = "categorical" if reference.chain_probs is not None else "gaussian"
    if reference.states is not None:
        return Judgement(tuple(_of_states(reference, likelihood)))
    return _of_summaries(reference, likelihood)


def _of_grids(reference: ReferenceArrays) -> Judgement:
    """Return whether the integrals on two grids agree."""
    if reference.chain_probs is None or len(reference.chain_probs) != 2:
        return Judgement(("it holds no integrals on two grids",))
    error = float(np.abs(np.diff(reference.chain_probs, axis=0)).max())
    if error > _GRIDS:
        return Judgement((f"the integrals on two grids differ by {error:.2g}, more than {_GRIDS:g}",))
    return Judgement()


def _of_states(reference: ReferenceArrays, likelihood: str) -> list[str]:
    """Return the thresholds that the states miss."""
    states, half = reference.states, reference.half_states
    history, after = reference.history, reference.half_history
    assert states is not None
    assert half is not None
    assert history is not None
    assert after is not None
    assert reference.start is not None
    found = convergence.diagnose(states)
    errors = convergence.energy(history.astype(np.float64))
    halved = convergence.half_step(states, history, half, after, found.mcse)
    why = verdict(
        likelihood, states.shape[1], found, history[:, 0].mean(axis=0), errors, halved
    )  # fmt: skip
    width = convergence.dispersion(reference.start, states)
    detectable = convergence.detectable(found.mcse, len(states) / len(half))
    return why + later_verdict(likelihood, errors, detectable, width)


def _of_summaries(reference: ReferenceArrays, likelihood: str) -> Judgement:
    """Judge an earlier file: its arrays where they suffice, else the numbers of its metadata."""
    about = reference.about
    if reference.samples is not None and len(reference.samples) < 2 * reference.chains:
        return Judgement(("it keeps fewer than two samples of each chain",))
    between, within = _variances(reference)
    rhat = np.sqrt(1 + between / np.maximum(within, _LEAST_VARIANCE))
    known = (
        np.fmax(reference.rhat, rhat),
        reference.rhat,
        reference.ess_bulk,
        reference.ess_tail,
        reference.mcse,
    )
    diagnosis = convergence.Diagnosis(*(np.asarray(values, np.float64) for values in known))
    errors, halved = about.energy_error, about.half_step
    if (
        about.acceptance is None
        or about.kept is None
        or errors is None
        or not (halved and halved.transitions)
    ):
        return Judgement(("it states no acceptance, energy errors or comparison with half the step",))
    why = verdict(likelihood, len(between), diagnosis, np.array(about.acceptance), errors, halved)
    if likelihood == "categorical":
        ratio = float((between.mean() / reference.chains) / np.mean(np.square(diagnosis.mcse)))
        if not ratio <= _STATED_ERRORS:
            why.append(f"the means of its chains vary {ratio:.0f} times as much as its standard errors allow")
    detectable = convergence.detectable(diagnosis.mcse, about.kept / halved.transitions)
    later = later_verdict(likelihood, errors, detectable, None)
    if errors.diverged > convergence.THRESHOLDS.diverged_earlier:
        return Judgement((*why, *later))
    return Judgement(tuple(why), (*later, LACKING, NO_STARTS))


def _variances(reference: ReferenceArrays) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the variance of the chains' means, and the mean variance within chains: (N, O), or (N, 1) of y."""
    if reference.chain_probs is not None:
        assert reference.samples is not None
        chains, parts = reference.chain_probs, np.array_split(reference.samples, reference.chains)
        within = np.mean(
            [part.var(axis=0, ddof=1, dtype=np.float64) for part in parts if len(part) > 1], axis=0
        )
        return chains.var(axis=0, ddof=1), within
    assert reference.chain_draws is not None
    draws = reference.chain_draws
    means = draws.mean(axis=2, dtype=np.float64)
    return means.var(axis=0, ddof=1)[:, None], draws.var(axis=2, ddof=1, dtype=np.float64).mean(axis=0)[
        :, None
    ]
