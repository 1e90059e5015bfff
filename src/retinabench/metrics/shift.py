"""Scores that compare the two domains: the images like those trained on, and the shifted ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.classification import ranked_auroc, ranked_average_precision
from retinabench.metrics.sorted_images import Weighted
from retinabench.metrics.uncertainty import uncertainties
from retinabench.predictions.table import Predictions

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


@dataclass(frozen=True)
class GradeRow:
    """One severity grade: its images, how many the model calls positive, how many are referred, and who is missed.

    detected: share called positive (p > 1/2) of all images of the grade. referred: share of them that is referred.
    caught: share called positive or referred. missed: ids of images of a referable grade that are neither.
    """

    grade: int
    images: int
    detected: float
    referred: float
    caught: float
    missed: tuple[str, ...]


def grade_table(predictions: Predictions, uncertainty: ArrayLike, threshold: float) -> list[GradeRow]:
    """Return one row per grade: images called positive, referred and missed.

    `missed` names the images with grade >= 2 that the model calls negative and does not refer; those of grades 3 and 4 are
    the severe cases that a screening programme must be able to look up.

    Args:
        predictions: N graded images.
        uncertainty: (N,) finite.
        threshold: Images with a larger uncertainty are referred.

    Returns:
        One row per grade present.

    Raises:
        InputError: There are no grades.
    """
    if predictions.grade is None:
        raise InputError(
            "is missing", file=predictions.source, column="grade", hint="The table needs grades 0 to 4."
        )
    u = uncertainties(uncertainty, len(predictions))
    called, referred = predictions.prob > 0.5, u > threshold
    rows = []
    for grade in np.unique(predictions.grade[predictions.grade >= 0]).tolist():
        here = predictions.grade == grade
        gone = here & ~called & ~referred if grade >= 2 else np.zeros(len(u), bool)
        rows.append(
            GradeRow(
                int(grade),
                int(here.sum()),
                float(called[here].mean()),
                float(referred[here].mean()),
                float((called | referred)[here].mean()),
                tuple(predictions.image_id[gone].tolist()),
            )
        )
    return rows


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


@dataclass(frozen=True)
class Histogram:
    """Densities (M,) of the uncertainty of right and of wrong answers of one grade, over the same edges (M+1,).

    Each density integrates to 1 over the edges, or is 0 throughout where there is no such answer.
    """

    grade: int
    edges: Floats
    right: Floats
    wrong: Floats
    right_images: int
    wrong_images: int


def uncertainty_histograms(
    predictions: Predictions, uncertainty: ArrayLike, bins: int = 40
) -> list[Histogram]:
    """Return histograms of an uncertainty by grade, right and wrong answers apart, over one range for all grades.

    Args:
        predictions: N graded images.
        uncertainty: (N,) finite.
        bins: Number of bins.

    Returns:
        One pair of densities per grade present.

    Raises:
        InputError: There are no grades.
    """
    if predictions.grade is None:
        raise InputError(
            "is missing", file=predictions.source, column="grade", hint="The histograms are by grade."
        )
    u = uncertainties(uncertainty, len(predictions))
    right = (predictions.prob > 0.5) == (predictions.label == 1)
    edges = np.linspace(min(0.0, float(u.min())), max(float(u.max()), float(np.log(2))), bins + 1)
    out = []
    for grade in np.unique(predictions.grade[predictions.grade >= 0]).tolist():
        here = predictions.grade == grade
        parts = [u[here & side] for side in (right, ~right)]
        density = [np.histogram(p, edges, density=True)[0] if len(p) else np.zeros(bins) for p in parts]
        out.append(Histogram(int(grade), edges, density[0], density[1], len(parts[0]), len(parts[1])))
    return out
