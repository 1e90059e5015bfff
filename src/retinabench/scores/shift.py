"""Scores that compare the two domains: the images like those trained on, and the shifted ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from retinabench.scores.cases import Weighted
from retinabench.scores.classification import ranked_auroc, ranked_average_precision

Floats = NDArray[np.float64]


def ood_auroc_of(w: Weighted) -> float:
    """P(a shifted image is more uncertain than an in-domain one) + P(tie) / 2; NaN outside joint sets."""
    shifted = _shifted(w)
    return ranked_auroc(w.cases.by_uncertainty, w.weight * shifted, w.weight * ~shifted)


def ood_auprc_of(w: Weighted) -> float:
    """Average precision of the uncertainty as a detector of shifted images; its chance level is their share."""
    shifted = _shifted(w)
    return ranked_average_precision(w.cases.by_uncertainty, w.weight * shifted, w.weight * ~shifted)


def _shifted(w: Weighted) -> NDArray[np.bool_]:
    return np.zeros(len(w.cases), bool) if w.cases.shifted is None else w.cases.shifted


def balanced_weight(shifted: NDArray[np.bool_], weight: Floats | None = None) -> Floats:
    """(N,) weights that give both domains the same mass: shifted images count (mass in domain) / (mass shifted) fold.

    weight: (N,) multiplicities to start from, such as those of a bootstrap replicate. The result is NaN in all places
    where one domain has no mass. No image is drawn at random: a score of the balanced set is a function of the
    predictions. Replaces the random duplication of the published protocol, see `docs/deviations.md`.
    """
    weight = np.ones(len(shifted)) if weight is None else weight
    here, there = weight[~shifted].sum(), weight[shifted].sum()
    if here <= 0 or there <= 0:
        return np.full(len(shifted), np.nan)
    return np.where(shifted, weight * (here / there), weight)
