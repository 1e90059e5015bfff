"""The four sets of a predictions file: their names and labels, how their images are weighted, and their scores as a function of weights."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from retinabench.metrics.arrays import Floats
from retinabench.metrics.bootstrap import cluster_codes
from retinabench.metrics.classification import balanced_weight
from retinabench.metrics.referral_curves import coarse_auprc_area
from retinabench.metrics.registry import SCORES, ScoreSpec
from retinabench.metrics.weighted_images import Cases, Index, Weighted
from retinabench.predictions.table import Predictions

SET_LABELS = {"in_domain": "In-domain", "shifted": "Shifted", "joint": "Joint", "balanced": "Balanced"}
"""The sets by their key in files, with what tables and figures call them; see `docs/scores.md`."""
SETS = tuple(SET_LABELS)
PER_IMAGE, PER_PATIENT = "per image", "per patient"
PER_IMAGE_OF_A_RANDOM_PATIENT = "per image of a random patient"
"""Denominators of rates: images, patients, or images of which each patient's together count as 1."""


class ImageSet:
    """One of `SETS`: its images, sorted for scoring, and how they are weighted. It keeps no ids.

    Attributes: `cluster` (N,) is the number of the patient (or image) of each row; `patients` the number of patients, None where
    they are not known; `positives` the number of images with label 1.
    """

    def __init__(self, name: str, part: Predictions, uncertainty: Floats, threshold: float = 0.5) -> None:
        self.name = name
        self.shifted = part.domain == "shifted"
        shifted = self.shifted if name == "joint" else None
        self.cluster, clusters = cluster_codes(part.patients)
        self.patients = None if part.patient_id is None else clusters
        self.positives = int(part.label.sum())
        self.cases = Cases(part.label, part.prob, uncertainty, shifted, threshold, self.cluster)
        self.scores = [s for s in SCORES.values() if s.given_for(name)]

    def balanced(self) -> ImageSet:
        """Return the balanced set of the images of this joint set; both share the sorted images and their indexes."""
        other = copy(self)
        other.name = "balanced"
        other.scores = [s for s in SCORES.values() if s.given_for("balanced")]
        return other

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def whole(self) -> Weighted:
        """Every image once; in the balanced set both domains with the same mass."""
        return self.cases.weighted(balanced_weight(self.shifted) if self.name == "balanced" else None)

    def weigh(self, weight: Floats) -> tuple[Weighted | None, Index]:
        """Return the images with weights (R, N), and which rows (R,) these are.

        A replicate of the balanced set that holds only one of the domains is left out; None where every one does.
        """
        if self.name == "balanced":
            weight = balanced_weight(self.shifted, weight)
        known = np.flatnonzero(np.isfinite(weight[:, 0]))
        ordered = np.take(weight[known], self.cases.order, axis=1)
        return (Weighted(self.cases, ordered) if len(known) else None), known


class SetEvaluator:
    """The scores of a set as a function of the weights of its images, such as those of bootstrap replicates.

    The area of AUPRC over referral is slow to compute. Replicates evaluate it at a few counts and add the difference
    between the exact and the coarse area of the whole set.
    Shapes: `point` (K,), the values on the whole set; computed where None.
    """

    def __init__(self, images: ImageSet, scores: Sequence[ScoreSpec], point: Floats | None = None) -> None:
        self.images, self.scores, self.whole = images, scores, images.whole
        self.point = np.array([s(self.whole) for s in scores]) if point is None else point
        coarse = [k for k, s in enumerate(scores) if s.name == "referral_auprc_area"]
        self.offset = {k: self.point[k] - coarse_auprc_area(self.whole) for k in coarse}

    def __call__(self, weight: Floats) -> Floats:
        """Return the (R, K) scores of images with weights (R, N), NaN where undefined."""
        values = np.full((len(weight), len(self.scores)), np.nan)
        w, known = self.images.weigh(weight)
        if w is None:
            return values
        for k, s in enumerate(self.scores):
            if k in self.offset:  # clipped, because the offset could lift a coarse area of nearly 1 above it
                values[known, k] = np.clip(coarse_auprc_area(w) + self.offset[k], 0.0, 1.0)
            else:
                values[known, k] = s(w)
        return values


def image_sets(test: Predictions, uncertainty: Floats, threshold: float = 0.5) -> list[ImageSet]:
    """Return the sets that exist, in the order of `SETS`: each domain, and both together, as they are and balanced.

    Shapes: `uncertainty` (N,), the largest is referred first.
    """
    sets = []
    for domain in ("in_domain", "shifted"):
        rows = np.flatnonzero(test.domain == domain)
        if len(rows):
            sets.append(ImageSet(domain, test.take(rows), uncertainty[rows], threshold))
    if len(sets) == 2:
        joint = ImageSet("joint", test, uncertainty, threshold)
        sets += [joint, joint.balanced()]
    return sets


def inversion_notes(name: str, auroc: float, high: float) -> list[str]:
    """Return a note that labels or probabilities look inverted, or none.

    auroc: AUROC of the set of that name. high: upper end of its interval; NaN where there is none.
    """
    if not (auroc < 0.4 and (high < 0.5 or not np.isfinite(high))):
        return []
    return [
        f"WARNING: labels or probabilities look inverted: {SET_LABELS[name]} AUROC {auroc:.2f} is far below 0.5. Label 1 "
        "and prob 1 mean referable"
    ]


def uncertainty_inversion_notes(name: str, failure_auroc: float, high: float) -> list[str]:
    """Return a note that a file's own uncertainty looks inverted, or none; none without an interval."""
    if not (failure_auroc < 0.4 and high < 0.5):
        return []
    return [
        f"WARNING: the column 'uncertainty' looks inverted: {SET_LABELS[name]} failure AUROC {failure_auroc:.2f} is far below "
        "0.5. Larger values must mean less certain images: a confidence needs its sign changed"
    ]
