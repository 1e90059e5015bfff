"""Submissions that cannot be independent of the reference: equal to it, or nearer than even exact inference could come.

Equal is also what is the mean of some of its chains, or of their samples or states.

A reference has an error of its own. The exact posterior is as far from it as that error, and independent draws of the
posterior are farther. What is less than half as far has used the reference. Noise added to a copy is not found: only test points
whose reference is not published could tell it.
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
_MOST_CHAINS = 16  # whose 65,535 subsets are all compared; of more chains each, and the mean of all
_BLOCK = 64  # probabilities that are compared with all subsets at a time: almost none is left after the first
_SHARE = 0.5  # of draws that stand in the reference, bit for bit
_LIMIT = 0.5  # of the distance of exact inference


def nearness(submission: Submission, reference: Reference) -> str:
    """Return `EQUAL` or `NEARER` where a submission is not independent of the reference, else an empty text."""
    if submission.probs is not None:
        difference = np.abs(submission.probs - reference.probs)
        if difference.max() <= _GRAIN or _of_some_chains(submission.probs, reference):
            return EQUAL
        found = float(distances.total_variation(submission.probs, reference.probs).mean())
        exact = None if reference.external else float(posterior_distance(reference.mcse).mean())
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

    Args:
        mcse: Standard errors e of the reference's probabilities, (N, C).
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


def _shared(draws: NDArray[np.floating], reference: NDArray[np.floating]) -> float:
    """Return the share of draws (N, S) that stand among those of the reference (N, M) at the same point."""
    pairs = zip(draws.astype(np.float32), reference.astype(np.float32), strict=True)
    return float(np.mean([np.isin(ours, theirs).mean() for ours, theirs in pairs]))
