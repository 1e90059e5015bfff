"""Scores that compare the two domains: the images like those trained on, and the shifted ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.classification import ranked_auroc, ranked_average_precision
from retinabench.metrics.sorted_images import Weighted

Floats = NDArray[np.float64]

EYEPACS_TEST = np.array([31_403, 3_042, 6_282, 977, 966]) / 42_670  # grades 0 to 4, counted in the label file


def ood_auroc_of(w: Weighted) -> float:
    """P(a shifted image is more uncertain than an in-domain one) + P(tie) / 2; NaN outside joint sets.

    References:
        Hendrycks and Gimpel, A baseline for detecting misclassified and out-of-distribution examples in neural networks,
        ICLR (2017).
    """
    _, there, here = ranked_domains(w)
    return ranked_auroc(w.cases.by_uncertainty, there, here)


def ood_auprc_of(w: Weighted) -> float:
    """Average precision of the uncertainty as a detector of shifted images; its chance level is their share.

    References:
        Hendrycks and Gimpel, A baseline for detecting misclassified and out-of-distribution examples in neural networks,
        ICLR (2017).
    """
    _, there, here = ranked_domains(w)
    return ranked_average_precision(w.cases.by_uncertainty, there, here)


def ranked_domains(w: Weighted) -> tuple[Floats, Floats, Floats]:
    """Return what tells the domains apart: the uncertainty, and the mass of shifted and of in-domain images, all (N,)."""
    shifted = np.zeros(len(w.cases), bool) if w.cases.shifted is None else w.cases.shifted
    return w.cases.uncertainty, w.weight * shifted, w.weight * ~shifted


def balanced_weight(shifted: NDArray[np.bool_], weight: Floats | None = None) -> Floats:
    """(N,) weights that give both domains the same mass: shifted images count (mass in domain) / (mass shifted) fold.

    weight: (N,) multiplicities to start from, such as those of a bootstrap replicate, or (R, N), each row by itself. The
    result is NaN in all places of a row where one domain has no mass. No image is drawn at random: a score of the balanced
    set is a function of the predictions. Replaces the random duplication of the published protocol, see `docs/deviations.md`.
    """
    weight = np.ones(len(shifted)) if weight is None else weight
    here, there = (
        np.compress(part, weight, axis=-1).sum(axis=-1, keepdims=True) for part in (~shifted, shifted)
    )
    factor = np.divide(here, there, out=np.full(here.shape, np.nan), where=(here > 0) & (there > 0))
    return np.where(shifted, weight * factor, np.where(np.isnan(factor), np.nan, weight))


def grade_weight(grade: ArrayLike, proportion: ArrayLike = EYEPACS_TEST) -> Floats:
    """(N,) weights that give the grades 0 … 4 these proportions, total N: APTOS as if graded like EyePACS.

    The exact form of the resampling with replacement of the published protocol (paper B.5): its expectation, without
    the random draw. A grade that is missing here leaves its share to the others. Raises `InputError` for a grade
    without proportion.
    """
    g, share = np.asarray(grade, np.intp), np.asarray(proportion, np.float64)
    if g.min() < 0 or g.max() >= len(share):
        raise InputError(
            f"grades {g.min()} to {g.max()} where proportions are for 0 to {len(share) - 1}", column="grade"
        )
    count = np.bincount(g, minlength=len(share))
    weight = np.divide(share, count, out=np.zeros(len(share)), where=count > 0)[g]
    return np.asarray(weight * (len(g) / weight.sum()))
