"""Submissions that cannot be independent of the reference: equal to it, or nearer than even exact inference could come.

Equal is also what is the mean of some of its chains, or of their samples or states, and what holds such samples or draws of y.

A reference has an error of its own, and so has each of its chains. The exact posterior is as far from it as that error,
and independent draws of the posterior are farther. What is less than half as far from the reference, or less than a quarter from one
chain, has used it. The mean of some of the draws of a chain, and a copy with noise, are not found: only test points whose reference
is not published could tell them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import Reference
from retinabench.fidelity.submissions.submission import Submission

Floats = NDArray[np.floating]

EQUAL = "equal to the reference"
NEARER = "nearer to the reference than independent draws could be"
_GRAIN = 1e-4  # largest difference of equal probabilities: four decimals
# Largest difference of equal draws, in stds over their number; of independent draws one in seven is as near.
_GRAIN_OF_DRAWS = 0.25
_MOST_CHAINS = 16  # whose 65,535 subsets are all compared; of more chains each, and the mean of all
_BLOCK = 64  # probabilities that are compared with all subsets at a time: almost none is left after the first
_SHARE = 0.5  # of samples, or draws, that stand in the reference
_LIMIT = 0.5  # of the distance of exact inference
_LIMIT_OF_CHAINS = 0.25  # the same of one of its chains


def nearness(submission: Submission, reference: Reference) -> str:
    """Return `EQUAL` or `NEARER` where a submission is not independent of the reference, else an empty text."""
    if submission.probs is not None:
        if _of_some_chains(submission.probs, reference) or _holds_samples(submission, reference):
            return EQUAL
        found = float(distances.total_variation(submission.probs, reference.probs).mean())
        exact = None if reference.external else float(posterior_distance(reference.mcse).mean())
        if exact is not None and _near_a_chain(submission.probs, reference, exact):
            return NEARER
    else:
        assert submission.draws is not None
        draws = reference.draws
        if _shared(submission.draws, draws) > _SHARE:
            return EQUAL
        found = float(distances.wasserstein(submission.draws, draws).mean())
        # The distance of M draws from their own distribution is half of that of two halves of them from each other.
        exact = float(distances.noise_floor(draws).mean()) / 2
    return NEARER if exact is not None and found < _LIMIT * exact else ""


def posterior_distance(mcse: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the expected total variation (N,) of the exact probabilities from the reference: √(2/π) Σ_c e_c / 2.

    Shapes: `mcse` (N, C).
    """
    return np.asarray(np.nansum(mcse, axis=1) * np.sqrt(2 / np.pi) / 2, np.float64)


def _of_some_chains(probs: Floats, reference: Reference) -> bool:
    """Whether probabilities (N, C) are those of some chains of the reference: its means, or those of what it keeps."""
    assert reference.chain_probs is not None
    parts, chains = [reference.chain_probs], len(reference.chain_probs)
    if reference.samples is not None and len(reference.samples) % chains == 0:  # they are in chain order
        samples = reference.samples.reshape(chains, -1, *probs.shape)
        parts.append(samples.mean(axis=1, dtype=np.float64))
    if reference.states is not None:
        parts.append(reference.states.mean(axis=0, dtype=np.float64))
    return any(_is_mean_of_some(probs, part) for part in parts)


def _near_a_chain(probs: Floats, reference: Reference, exact: float) -> bool:
    """Whether probabilities (N, C) are nearer to one of K chains, whose error is √K times `exact`, than others could be."""
    assert reference.chain_probs is not None
    chains = reference.chain_probs
    nearest = min(float(distances.total_variation(probs, chain).mean()) for chain in chains)
    return bool(nearest < _LIMIT_OF_CHAINS * exact * np.sqrt(len(chains)))


def _is_mean_of_some(probs: Floats, chains: Floats) -> bool:
    """Whether probabilities (N, C) are the mean of any of the chains (K, N, C)."""
    count = len(chains)
    chosen = np.vstack([np.eye(count), np.ones(count)])
    if count <= _MOST_CHAINS:
        chosen = (np.arange(1, 2**count)[:, None] >> np.arange(count) & 1).astype(np.float64)
    weights = chosen / chosen.sum(axis=1, keepdims=True)
    values, wanted = chains.reshape(count, -1).astype(np.float64), probs.ravel()
    for start in range(0, wanted.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        difference = np.abs(weights @ values[:, block] - wanted[block]).max(axis=1)
        weights = weights[difference <= _GRAIN]
        if not len(weights):
            return False
    return True


def _holds_samples(submission: Submission, reference: Reference) -> bool:
    """Whether samples (S, N, C) of a submission stand among those, or the states, that the reference keeps."""
    if submission.samples is None:
        return False
    kept = [part for part in (reference.samples, reference.states) if part is not None]
    points = submission.samples.shape[1:]
    theirs = {one.tobytes() for part in kept for one in part.reshape(-1, *points).astype(np.float16)}
    ours = [one.tobytes() for one in submission.samples.astype(np.float16)]
    return sum(one in theirs for one in ours) > _SHARE * len(ours)


def _shared(draws: NDArray[np.floating], reference: NDArray[np.floating]) -> float:
    """Return the share of draws (N, S) that stand among those of the reference (N, M) at the same point, up to rounding."""
    found = []
    for ours, theirs in zip(draws, np.sort(reference, axis=1), strict=True):
        place = np.searchsorted(theirs, ours).clip(1, len(theirs) - 1)
        nearest = np.minimum(np.abs(ours - theirs[place - 1]), np.abs(ours - theirs[place]))
        found.append(np.mean(nearest <= _GRAIN_OF_DRAWS * theirs.std() / len(theirs)))
    return float(np.mean(found))
