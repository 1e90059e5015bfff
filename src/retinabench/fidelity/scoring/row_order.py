"""Whether the rows of a submission are in the order of the test points, as far as labels can tell.

Rows in another order name the right class as often as chance: Σ_c (share of rows that are named c) (share of points that are c). Where the
reference names the right class more often than that, a submission whose accuracy is no better than chance is marked and not ranked. Counted runs are
exempt, since the program wrote their rows, and so are submissions that name (nearly) one class, whose rows cannot be told apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retinabench.fidelity.submissions.submission import Submission

_VARIED = 0.05  # least share of rows that name another class than the most frequent one
_DOUBT, _PROOF = 2.0, 4.0  # standard errors of an accuracy above chance


def order_doubt(
    submission: Submission, reference: NDArray[np.floating] | None, truth: NDArray[np.integer] | None
) -> str:
    """Return why the order of a submission is in doubt; empty where it is not, or cannot be told.

    Shapes: `reference` (N, C), `truth` (N,).
    """
    if submission.probs is None or reference is None or truth is None or submission.about.counted:
        return ""
    named = submission.probs.argmax(axis=1)
    if 1 - np.bincount(named).max() / len(named) < _VARIED:
        return ""
    if _excess(reference.argmax(axis=1), truth)[1] < _PROOF or _excess(named, truth)[1] > _DOUBT:
        return ""
    accuracy, chance = (named == truth).mean(), _excess(named, truth)[0]
    return f"its order is in doubt: an accuracy of {accuracy:.3f}, where rows in any other order give {chance:.3f}"


def _excess(named: NDArray[np.integer], truth: NDArray[np.integer]) -> tuple[float, float]:
    """Return the accuracy of rows in random order, and how many standard errors the accuracy lies above it."""
    classes = int(max(named.max(), truth.max())) + 1
    shares = (np.bincount(values, minlength=classes) / len(values) for values in (named, truth))
    chance = float(np.dot(*shares))
    error = np.sqrt(max(chance * (1 - chance), 1e-12) / len(truth))
    return chance, float(((named == truth).mean() - chance) / error)
