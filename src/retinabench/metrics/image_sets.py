"""The four sets of a predictions file: their names and labels, and how their images are weighted."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics import referral_curves
from retinabench.metrics.bootstrap import cluster_codes
from retinabench.metrics.classification import balanced_weight
from retinabench.metrics.referral_curves import coarse_auprc_area
from retinabench.metrics.registry import SCORES, ScoreSpec
from retinabench.metrics.weighted_images import Batch, Cases, Weighted
from retinabench.predictions.table import Predictions

SET_LABELS = {"in_domain": "In-domain", "shifted": "Shifted", "joint": "Joint", "balanced": "Balanced"}

"""The sets by their key in files, with what tables and figures call them; see `docs/scores.md`."""

SETS = tuple(SET_LABELS)

PER_IMAGE, PER_PATIENT = "per image", "per patient"

PER_IMAGE_OF_A_RANDOM_PATIENT = "per image of a random patient"

"""What a rate is a share of, as tables and captions say it: images, patients, or images of which each patient's together count as 1."""

Floats = NDArray[np.float64]


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

    def weigh(self, weight: Floats | None = None) -> Weighted | None:
        """Return the images with weights (N,), 1 each where None.

        None for a replicate of the balanced set that holds only one of the domains.
        """
        if self.name != "balanced":
            return self.cases.weighted(weight)
        both = balanced_weight(self.shifted, weight)
        return None if np.isnan(both[0]) else self.cases.weighted(both)

    @property
    def whole(self) -> Weighted:
        """Every image once; in the balanced set both domains with the same mass."""
        whole = self.weigh()
        assert whole is not None  # a balanced set is made only where both domains are there
        return whole


class SetEvaluator:
    """The scores of a set as a function of the weights of its images, such as those of a bootstrap replicate.

    The area of AUPRC over referral is slow to compute. Replicates evaluate it at a few counts and add the difference
    between the exact and the coarse area of the whole set.

    Shapes: `point` (K,).
    """

    def __init__(self, images: ImageSet, scores: Sequence[ScoreSpec], point: Floats | None = None) -> None:
        self.images, self.scores, self.whole = images, scores, images.whole
        self.point = np.array([s(self.whole) for s in scores]) if point is None else point
        coarse = [k for k, s in enumerate(scores) if s.name == "referral_auprc_area"]
        self.offset = {k: self.point[k] - _coarse(self.whole) for k in coarse}

    def rows(self, weight: Floats) -> Floats:
        """Return the (R, K) scores of images with weights (R, N): as a call for each row, to 1e-12, and much faster."""
        cases = self.images.cases
        if self.images.name == "balanced":
            weight = balanced_weight(self.images.shifted, weight)
        defined = np.isfinite(weight[:, 0])
        ordered = np.take(weight[defined], cases.order, axis=1)
        found = np.full((len(weight), len(self.scores)), np.nan)
        if not len(ordered):
            return found
        batch = Batch(cases, ordered)
        for k, s in enumerate(self.scores):
            if k in self.offset:
                found[defined, k] = np.clip(coarse_auprc_area(batch) + self.offset[k], 0.0, 1.0)
            else:
                found[defined, k] = score_rows(s, batch)
        return found

    def __call__(self, weight: Floats) -> Floats:
        """Return the (K,) scores of images with weights (N,), NaN where undefined."""
        w = self.images.weigh(weight)
        if w is None:
            return np.full(len(self.scores), np.nan)
        return np.array(
            # Clipped, because the offset could lift a coarse area of nearly 1 above it.
            [
                np.clip(_coarse(w) + self.offset[k], 0.0, 1.0) if k in self.offset else s(w)
                for k, s in enumerate(self.scores)
            ]
        )


def score_rows(score: ScoreSpec, batch: Batch) -> Floats:
    """Return a score (R,) of R weightings, by its batched form where it has one."""
    if score.batched is not None:
        return np.asarray(batch.derived(score.batched), np.float64)
    return np.array([score(Weighted(batch.cases, row)) for row in batch.weight])


class Together:
    """The scores of several models on the same images, one after the other, as a function of the weights of the images."""

    def __init__(self, evaluators: Sequence[SetEvaluator]) -> None:
        self.evaluators = evaluators

    def rows(self, weight: Floats) -> Floats:
        """Return the (R, M K) scores of images with weights (R, N)."""
        return np.concatenate([evaluator.rows(weight) for evaluator in self.evaluators], axis=1)

    def __call__(self, weight: Floats) -> Floats:
        """Return the (M K,) scores of images with weights (N,)."""
        return np.concatenate([evaluator(weight) for evaluator in self.evaluators])


def _coarse(w: Weighted) -> float:
    return referral_curves.coarse_area(w, referral_curves.MIN_CLASS)


def image_sets(test: Predictions, uncertainty: Floats, threshold: float = 0.5) -> list[ImageSet]:
    """Return the sets that exist: each domain, and both together, as they are and balanced.

    Shapes: `uncertainty` (N,).
    """
    found = []
    for domain in ("in_domain", "shifted"):
        rows = np.flatnonzero(test.domain == domain)
        if len(rows):
            found.append(ImageSet(domain, test.take(rows), uncertainty[rows], threshold))
    if len(found) == 2:
        joint = ImageSet("joint", test, uncertainty, threshold)
        found += [joint, joint.balanced()]
    return found


def inversion_notes(name: str, auroc: float, high: float) -> list[str]:
    """Say that labels or probabilities look inverted where a model ranks far worse than chance."""
    if not (auroc < 0.4 and (high < 0.5 or not np.isfinite(high))):
        return []
    return [
        f"WARNING: labels or probabilities look inverted: {SET_LABELS[name]} AUROC {auroc:.2f} is far below 0.5. Label 1 "
        "and prob 1 mean referable"
    ]


def uncertainty_inversion_notes(name: str, failure_auroc: float, high: float) -> list[str]:
    """Say that a file's own uncertainty looks inverted where it is far lower for wrong answers than for right ones."""
    if not (failure_auroc < 0.4 and high < 0.5):
        return []
    return [
        f"WARNING: the column 'uncertainty' looks inverted: {SET_LABELS[name]} failure AUROC {failure_auroc:.2f} is far below "
        "0.5. Larger values must mean less certain images: a confidence needs its sign changed"
    ]
