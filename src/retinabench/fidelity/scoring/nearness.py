"""Submissions that cannot be independent of the reference: equal to it, or nearer than even exact inference could come.

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

EQUAL = "equal to the reference"
NEARER = "nearer to the reference than independent draws could be"
_GRAIN = 1e-4  # largest difference of equal probabilities: four decimals
_SHARE = 0.5  # of draws that stand in the reference, bit for bit
_LIMIT = 0.5  # of the distance of exact inference


def nearness(submission: Submission, reference: Reference) -> str:
    """Return `EQUAL` or `NEARER` where a submission is not independent of the reference, else an empty text."""
    if submission.probs is not None:
        difference = np.abs(submission.probs - reference.probs)
        if difference.max() <= _GRAIN:
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


def _shared(draws: NDArray[np.floating], reference: NDArray[np.floating]) -> float:
    """Return the share of draws (N, S) that stand among those of the reference (N, M) at the same point."""
    pairs = zip(draws.astype(np.float32), reference.astype(np.float32), strict=True)
    return float(np.mean([np.isin(ours, theirs).mean() for ours, theirs in pairs]))
